// Tests loading CogVideoX: the names and shapes of the published checkpoints, and the weights that are refused.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

/// Returns the names and shapes of the published models' tensors, for text to video and image to video.
nlohmann::json published() {
  nlohmann::json all = nlohmann::json::object();
  for (const char* name : {"/dit_names.json", "/cogvideox_i2v/dit_names.json"}) {
    std::ifstream file(SPARSEREEL_TEST_DATA + std::string(name));
    all.update(nlohmann::json::parse(file));
  }
  return all;
}

test::ZeroComponent cogvideox_zeros(const std::string& name) {
  return {"CogVideoXTransformer3DModel", "transformer_blocks", published()[name]};
}

class PublishedCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedCheckpoint, LoadsWithExactlyThePublishedNamesAndShapes) {
  test::ZeroComponent zeros = cogvideox_zeros(GetParam());
  test::expect_exact_names(zeros);
}

INSTANTIATE_TEST_SUITE_P(CogVideoX, PublishedCheckpoint,
                         ::testing::Values("2b", "5b", "1.5-5b", "5b with learned positions", "5b-i2v", "1.5-5b-i2v"),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

TEST(CogVideoXLoading, ListsMissingAndMisshapedWeightsInOneError) {
  test::ZeroComponent zeros = cogvideox_zeros("2b");
  zeros.component.tensors.erase("transformer_blocks.7.attn1.to_k.weight");
  zeros.component.tensors.erase("patch_embed.proj.weight");
  zeros.add("time_embedding.linear_1.weight", {3, 4});
  const std::string cause = test::load_complaint(zeros.component);
  for (const char* name :
       {"transformer_blocks.7.attn1.to_k.weight", "patch_embed.proj.weight", "time_embedding.linear_1.weight"}) {
    EXPECT_NE(cause.find(name), std::string::npos) << cause;
  }
}

struct Refusal {
  const char* name;
  nlohmann::json change;
  const char* field;
};

class InvalidCogVideoXConfig : public ::testing::TestWithParam<Refusal> {};

TEST_P(InvalidCogVideoXConfig, IsRefusedWithFieldAndFile) {
  test::ZeroComponent zeros = cogvideox_zeros("2b");
  zeros.component.config.update(GetParam().change);
  const std::string cause = test::load_complaint(zeros.component);
  EXPECT_NE(cause.find(GetParam().field), std::string::npos) << cause;
  EXPECT_NE(cause.find("zeros/config.json"), std::string::npos) << cause;
}

INSTANTIATE_TEST_SUITE_P(
    CogVideoX, InvalidCogVideoXConfig,
    ::testing::Values(
        Refusal{"constant_of_another_width", {{"ofs_embed_dim", 256}}, "ofs_embed_dim"},
        Refusal{"more_inputs", {{"in_channels", 33}}, "in_channels"},
        Refusal{"learned_without_rotary",
                {{"use_learned_positional_embeddings", true}},
                "use_learned_positional_embeddings"},
        Refusal{"depth_without_rotary", {{"patch_size_t", 2}}, "patch_size_t"},
        Refusal{"rotary_width",
                {{"use_rotary_positional_embeddings", true}, {"attention_head_dim", 24}},
                "attention_head_dim"},
        Refusal{"position_width", {{"num_attention_heads", 1}, {"attention_head_dim", 24}}, "num_attention_heads"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sparsereel::models
