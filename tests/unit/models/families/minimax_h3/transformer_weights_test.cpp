// Tests loading MiniMax-H3: the names and shapes of the published transformer, and the configs that are refused.
#include <gtest/gtest.h>

#include "models/families/minimax_h3/loaders.h"
#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

test::ZeroComponent minimax_h3_zeros() {
  return {"MiniMaxH3Transformer3DModel", "transformer_blocks",
          read_json(SPARSEREEL_TEST_DATA "/minimax_h3/dit_names.json").at("33B")};
}

void load_minimax_h3(const Component& component) {
  load_minimax_h3_transformer(component, at::kMeta, at::kBFloat16);
}

std::string complaint_of(const test::ZeroComponent& zeros) {
  return test::load_complaint(zeros.component, load_minimax_h3);
}

TEST(MiniMaxH3Loading, TakesExactlyThePublishedNamesAndShapes) {
  test::ZeroComponent zeros = minimax_h3_zeros();
  test::expect_exact_names(zeros, load_minimax_h3);
}

TEST(MiniMaxH3Loading, NamesMissingWeightsOfModulation) {
  test::ZeroComponent zeros = minimax_h3_zeros();
  zeros.component.tensors.erase("transformer_blocks.49.adaln_proj.linear.weight");
  zeros.add("transformer_blocks.3.adaln_proj.linear.bias", {5});
  const std::string cause = complaint_of(zeros);
  EXPECT_NE(cause.find("1 missing: \"transformer_blocks.49.adaln_proj.linear.weight\""), std::string::npos) << cause;
  EXPECT_NE(cause.find("1 misshaped: \"transformer_blocks.3.adaln_proj.linear.bias\""), std::string::npos) << cause;
}

TEST(MiniMaxH3Loading, RefusesUnsupportedConfigs) {
  using nlohmann::json;
  for (const auto& [field, value] : {std::pair{"num_attention_heads", json(0)},
                                     {"attention_head_dim", json(33)},
                                     {"hidden_size", json("wide")},
                                     {"num_layers", json(0)},
                                     {"num_refiner_layers", json(-1)},
                                     {"ffn_dim", json(1.5)},
                                     {"in_channels", json(nullptr)},
                                     {"audio_in_channels", json(0)},
                                     {"patch_size", json({2, 2, 2})},
                                     {"patch_size", json({1, 2})},
                                     {"patch_size", json({1, 65, 2})},
                                     {"text_dim", json(0)},
                                     {"freq_dim", json(1)},
                                     {"time_embed_hidden_dim", json(0)},
                                     {"time_embed_dim", json(0)},
                                     {"rope_freq_dim", json(22)},
                                     {"rope_theta", json(0)},
                                     {"norm_eps", json(-1)},
                                     {"qk_norm_eps", json(2)},
                                     {"final_norm_eps", json(true)}}) {
    test::ZeroComponent zeros = minimax_h3_zeros();
    zeros.component.config[field] = value;
    const std::string cause = complaint_of(zeros);
    EXPECT_NE(cause.find(field), std::string::npos) << field << ": " << cause;
    EXPECT_NE(cause.find("zeros/config.json"), std::string::npos) << cause;
  }
}

}  // namespace
}  // namespace sparsereel::models
