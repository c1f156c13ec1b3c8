// Tests the translation of tensors' names from one program's names to another's and back.
#include "models/store/checkpoint/name_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/families/mochi/family.h"
#include "models/families/wan/family.h"

namespace sparsereel::models {
namespace {

const NameMap kNames({{"blocks.*.attn.to_q", "layers.*.self.q"}, {"up.*.conv.*", "u.*.c.*"}, {"out", "head.head"}});

TEST(NameMap, RenamesLayersAndKeepsSuffixes) {
  EXPECT_EQ(kNames.second("blocks.12.attn.to_q.weight"), "layers.12.self.q.weight");
  EXPECT_EQ(kNames.second("blocks.12.attn.to_q"), "layers.12.self.q");
  EXPECT_EQ(kNames.second("up.3.conv.14.bias"), "u.3.c.14.bias");
  EXPECT_EQ(kNames.first("layers.0.self.q.scale_weight"), "blocks.0.attn.to_q.scale_weight");
  EXPECT_EQ(kNames.first("head.head.bias"), "out.bias");
}

TEST(NameMap, KeepsOtherNames) {
  for (const char* name : {"blocks.x.attn.to_q.weight", "blocks..attn.to_q", "blocks.1.attn.to_qk", "blocks.1.attn",
                           "my.out.bias", "output", ""})
    EXPECT_EQ(kNames.second(name), name);
  EXPECT_EQ(NameMap().first("anything"), "anything");
}

/// Compares with diffusers' convert_wan_to_diffusers.py.
TEST(NameMap, MatchesTheDiffusersConverterForWansTransformer) {
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
  const NameMap map = wan_transformer_part().names.others.front();
  for (const auto& [diffusers, original] : names) {
    EXPECT_EQ(map.second(diffusers), original);
    EXPECT_EQ(map.first(original), diffusers);
    EXPECT_EQ(map.first(diffusers), diffusers) << "a file in diffusers' names stays as it is";
  }
}

TEST(NameMap, KnowsEveryPublishedNameOfWansTransformer) {
  std::ifstream file(SPARSEREEL_TEST_DATA "/wan/dit_names.json");
  const NameMap map = wan_transformer_part().names.others.front();
  const nlohmann::json models = nlohmann::json::parse(file);
  ASSERT_FALSE(models.empty());
  for (const auto& [model, content] : models.items())
    for (const auto& [name, shape] : content["block"].items()) {
      const std::string full = "blocks.7." + name;
      EXPECT_NE(map.second(full), full);
      EXPECT_EQ(map.first(map.second(full)), full);
    }
}

/// Compares with the published lists of names, and with diffusers' convert_wan_to_diffusers.py.
TEST(NameMap, MatchesTheDiffusersConverterForWansVaes) {
  std::ifstream list(SPARSEREEL_TEST_DATA "/wan/vae_names.json");
  const nlohmann::json published = nlohmann::json::parse(list);
  const std::vector<NameMap> maps = wan_vae_part().names.others;
  const std::pair<const char*, const char*> older[] = {
      {"quant_conv.weight", "conv1.weight"},
      {"post_quant_conv.bias", "conv2.bias"},
      {"decoder.conv_in.weight", "decoder.conv1.weight"},
      {"decoder.norm_out.gamma", "decoder.head.0.gamma"},
      {"decoder.conv_out.bias", "decoder.head.2.bias"},
      {"decoder.mid_block.resnets.0.norm1.gamma", "decoder.middle.0.residual.0.gamma"},
      {"decoder.mid_block.resnets.1.conv2.bias", "decoder.middle.2.residual.6.bias"},
      {"decoder.mid_block.attentions.0.to_qkv.weight", "decoder.middle.1.to_qkv.weight"},
      {"decoder.up_blocks.0.upsamplers.0.time_conv.weight", "decoder.upsamples.3.time_conv.weight"},
      {"decoder.up_blocks.1.resnets.0.conv_shortcut.weight", "decoder.upsamples.4.shortcut.weight"},
      {"decoder.up_blocks.2.upsamplers.0.resample.1.bias", "decoder.upsamples.11.resample.1.bias"},
      {"decoder.up_blocks.3.resnets.2.norm2.gamma", "decoder.upsamples.14.residual.3.gamma"},
      {"encoder.down_blocks.8.time_conv.weight", "encoder.downsamples.8.time_conv.weight"},
      {"encoder.down_blocks.10.conv1.weight", "encoder.downsamples.10.residual.2.weight"}};
  const std::pair<const char*, const char*> newer[] = {
      {"decoder.up_blocks.2.resnets.0.conv_shortcut.bias", "decoder.upsamples.2.upsamples.0.shortcut.bias"},
      {"decoder.up_blocks.0.upsampler.time_conv.weight", "decoder.upsamples.0.upsamples.3.time_conv.weight"},
      {"encoder.down_blocks.1.downsampler.resample.1.bias", "encoder.downsamples.1.downsamples.2.resample.1.bias"},
      {"encoder.down_blocks.3.resnets.1.norm1.gamma", "encoder.downsamples.3.downsamples.1.residual.0.gamma"}};
  for (const auto& [diffusers, original] : older) EXPECT_EQ(maps[0].second(diffusers), original);
  for (const auto& [diffusers, original] : newer) EXPECT_EQ(maps[1].second(diffusers), original);
  for (const auto& [model, map] : {std::pair("2.1", maps[0]), std::pair("2.2 5b", maps[1])}) {
    for (const auto& [name, shape] : published[model]["rest"].items()) {
      EXPECT_NE(map.second(name), name);
      EXPECT_EQ(map.first(map.second(name)), name);
      EXPECT_EQ(map.first(name), name);
    }
  }
}

TEST(NameMap, MapsOneFusedTensorToSeveralNames) {
  const NameMap names = NameMap(NameMap::Pairs{{"blocks.*.norm", "b.*.n"}})
                            .with_moved_rows({{.first = "blocks.*.q", .second = "b.*.qk", .part = 0, .parts = 2},
                                              {.first = "blocks.*.k", .second = "b.*.qk", .part = 1, .parts = 2},
                                              {.first = "out", .second = "head", .halves_swapped = true}});
  EXPECT_EQ(names.second("blocks.3.k.weight"), "b.3.qk.weight");
  EXPECT_EQ(names.placed_second("blocks.3.k.weight").rows->part, 1);
  EXPECT_EQ(names.placed_second("blocks.3.norm.weight").rows, nullptr);
  const std::vector<PlacedName> both = names.placed_firsts("b.3.qk.weight");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].name, "blocks.3.q.weight");
  EXPECT_EQ(both[1].name, "blocks.3.k.weight");
  EXPECT_EQ(both[1].rows->part, 1);
  EXPECT_TRUE(names.placed_firsts("head.bias").front().rows->halves_swapped);
  EXPECT_EQ(names.placed_firsts("b.3.n.weight").front().name, "blocks.3.norm.weight");
  EXPECT_EQ(names.placed_firsts("anything").front().name, "anything");
}

/// Compares with diffusers' convert_mochi_to_diffusers.py, which also splits tensors and swaps halves.
TEST(NameMap, MatchesTheDiffusersConverterForMochisTransformer) {
  const std::pair<const char*, const char*> names[] = {
      {"patch_embed.proj.weight", "x_embedder.proj.weight"},
      {"time_embed.timestep_embedder.linear_1.bias", "t_embedder.mlp.0.bias"},
      {"time_embed.timestep_embedder.linear_2.weight", "t_embedder.mlp.2.weight"},
      {"time_embed.pooler.to_kv.weight", "t5_y_embedder.to_kv.weight"},
      {"time_embed.pooler.to_q.bias", "t5_y_embedder.to_q.bias"},
      {"time_embed.pooler.to_out.weight", "t5_y_embedder.to_out.weight"},
      {"time_embed.caption_proj.bias", "t5_yproj.bias"},
      {"transformer_blocks.3.norm1.linear.weight", "blocks.3.mod_x.weight"},
      {"transformer_blocks.3.norm1_context.linear.bias", "blocks.3.mod_y.bias"},
      {"transformer_blocks.3.attn1.norm_q.weight", "blocks.3.attn.q_norm_x.weight"},
      {"transformer_blocks.3.attn1.norm_added_k.weight", "blocks.3.attn.k_norm_y.weight"},
      {"transformer_blocks.3.attn1.to_out.0.bias", "blocks.3.attn.proj_x.bias"},
      {"transformer_blocks.3.attn1.to_add_out.weight", "blocks.3.attn.proj_y.weight"},
      {"transformer_blocks.3.ff.net.2.weight", "blocks.3.mlp_x.w2.weight"},
      {"transformer_blocks.3.ff_context.net.2.weight", "blocks.3.mlp_y.w2.weight"},
      {"proj_out.weight", "final_layer.linear.weight"}};
  const NameMap map = mochi_transformer_part().names.others.front();
  for (const auto& [diffusers, original] : names) {
    EXPECT_EQ(map.second(diffusers), original);
    EXPECT_EQ(map.first(original), diffusers);
    EXPECT_EQ(map.placed_second(diffusers).rows, nullptr);
  }
  EXPECT_EQ(map.second("transformer_blocks.47.norm1_context.linear_1.weight"), "blocks.47.mod_y.weight");
  const auto rows = [&](const char* name) { return *map.placed_second(name).rows; };
  EXPECT_EQ(rows("transformer_blocks.3.attn1.to_v.weight").part, 2);
  EXPECT_EQ(rows("transformer_blocks.3.attn1.to_v.weight").parts, 3);
  EXPECT_EQ(rows("transformer_blocks.3.attn1.add_k_proj.weight").part, 1);
  for (const char* swapped : {"norm_out.linear.bias", "transformer_blocks.3.ff.net.0.proj.weight",
                              "transformer_blocks.3.ff_context.net.0.proj.weight"})
    EXPECT_TRUE(rows(swapped).halves_swapped) << swapped;
}

TEST(NameMap, KnowsEveryPublishedNameOfMochi) {
  const auto published = [](const char* list) {
    std::ifstream file(std::string(SPARSEREEL_TEST_DATA "/mochi/") + list);
    return nlohmann::json::parse(file)["1 preview"];
  };
  const NameMap transformer = mochi_transformer_part().names.others.front();
  const nlohmann::json lists = published("dit_names.json");
  nlohmann::json all = lists["rest"];
  for (const auto& [name, shape] : lists["block"].items()) all["transformer_blocks.7." + name] = shape;
  for (const auto& [name, shape] : all.items()) {
    const auto is_this = [&, &name = name](const PlacedName& layer) { return layer.name == name; };
    const std::string theirs = transformer.second(name);
    EXPECT_TRUE(theirs != name || name == "pos_frequencies");
    EXPECT_TRUE(std::ranges::any_of(transformer.placed_firsts(theirs), is_this) ||
                name.find("norm1_context.linear_1") != std::string::npos)
        << name;
  }
  for (const NameMap& map : mochi_vae_part().names.others) {
    const nlohmann::json vae = published("vae_names.json");
    for (const auto& [name, shape] : vae["rest"].items()) {
      EXPECT_EQ(map.second(name) != name, name.starts_with("decoder.")) << name;
      EXPECT_EQ(map.first(map.second(name)), name);
    }
  }
  EXPECT_EQ(mochi_vae_part().names.others[1].second("decoder.block_in.resnets.2.conv2.conv.bias"),
            "blocks.0.3.stack.5.bias");
  EXPECT_EQ(mochi_vae_part().names.others[0].second("decoder.block_out.resnets.1.norm1.norm_layer.weight"),
            "decoder.blocks.4.1.stack.0.weight");
}

}  // namespace
}  // namespace sparsereel::models
