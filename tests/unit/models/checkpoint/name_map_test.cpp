// Names go from one program's to another's and back.
#include "models/checkpoint/name_map.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/families/wan/family.h"

namespace sparsereel::models {
namespace {

const NameMap kNames({{"blocks.*.attn.to_q", "layers.*.self.q"}, {"up.*.conv.*", "u.*.c.*"}, {"out", "head.head"}});

TEST(NameMap, RenamesLayersAndKeepsWhatFollows) {
  EXPECT_EQ(kNames.second("blocks.12.attn.to_q.weight"), "layers.12.self.q.weight");
  EXPECT_EQ(kNames.second("blocks.12.attn.to_q"), "layers.12.self.q");
  EXPECT_EQ(kNames.second("up.3.conv.14.bias"), "u.3.c.14.bias");
  EXPECT_EQ(kNames.first("layers.0.self.q.scale_weight"), "blocks.0.attn.to_q.scale_weight");
  EXPECT_EQ(kNames.first("head.head.bias"), "out.bias");
}

TEST(NameMap, LeavesOtherNamesAlone) {
  for (const char* name : {"blocks.x.attn.to_q.weight", "blocks..attn.to_q", "blocks.1.attn.to_qk", "blocks.1.attn",
                           "my.out.bias", "output", ""})
    EXPECT_EQ(kNames.second(name), name);
  EXPECT_EQ(NameMap().first("anything"), "anything");
}

/// Those that convert_wan_to_diffusers.py renames.
TEST(NameMap, OfWansTransformerIsThatOfDiffusersConverter) {
  const std::pair<const char*, const char*> names[] = {
      {"patch_embedding.weight", "patch_embedding.weight"},
      {"condition_embedder.text_embedder.linear_1.weight", "text_embedding.0.weight"},
      {"condition_embedder.text_embedder.linear_2.bias", "text_embedding.2.bias"},
      {"condition_embedder.time_embedder.linear_1.bias", "time_embedding.0.bias"},
      {"condition_embedder.time_embedder.linear_2.weight", "time_embedding.2.weight"},
      {"condition_embedder.time_proj.weight", "time_projection.1.weight"},
      {"blocks.39.attn1.to_q.weight", "blocks.39.self_attn.q.weight"},
      {"blocks.0.attn1.to_k.bias", "blocks.0.self_attn.k.bias"},
      {"blocks.0.attn1.to_out.0.weight", "blocks.0.self_attn.o.weight"},
      {"blocks.0.attn1.norm_q.weight", "blocks.0.self_attn.norm_q.weight"},
      {"blocks.0.attn2.to_v.weight", "blocks.0.cross_attn.v.weight"},
      {"blocks.0.attn2.to_out.0.bias", "blocks.0.cross_attn.o.bias"},
      {"blocks.0.attn2.norm_k.weight", "blocks.0.cross_attn.norm_k.weight"},
      {"blocks.0.norm2.weight", "blocks.0.norm3.weight"},
      {"blocks.0.ffn.net.0.proj.weight", "blocks.0.ffn.0.weight"},
      {"blocks.0.ffn.net.2.bias", "blocks.0.ffn.2.bias"},
      {"blocks.0.scale_shift_table", "blocks.0.modulation"},
      {"proj_out.weight", "head.head.weight"},
      {"scale_shift_table", "head.modulation"}};
  const NameMap map = wan_transformer_names().others.front();
  for (const auto& [diffusers, original] : names) {
    EXPECT_EQ(map.second(diffusers), original);
    EXPECT_EQ(map.first(original), diffusers);
    EXPECT_EQ(map.first(diffusers), diffusers) << "a file in diffusers' names stays as it is";
  }
}

TEST(NameMap, OfWansTransformerKnowsEveryPublishedName) {
  std::ifstream file(SPARSEREEL_TEST_DATA "/wan/dit_names.json");
  const NameMap map = wan_transformer_names().others.front();
  const nlohmann::json models = nlohmann::json::parse(file);
  ASSERT_FALSE(models.empty());
  for (const auto& [model, content] : models.items())
    for (const auto& [name, shape] : content["block"].items()) {
      const std::string full = "blocks.7." + name;
      EXPECT_NE(map.second(full), full);
      EXPECT_EQ(map.first(map.second(full)), full);
    }
}

}  // namespace
}  // namespace sparsereel::models
