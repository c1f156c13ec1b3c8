// Tests loading Mochi: the names and shapes of the published transformer, and the configs that are refused.
#include <gtest/gtest.h>

#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

test::ZeroComponent mochi_zeros() {
  return {"MochiTransformer3DModel", "transformer_blocks",
          read_json(SPARSEREEL_TEST_DATA "/mochi/dit_names.json").at("1 preview")};
}

TEST(MochiLoading, TakesExactlyThePublishedNamesAndShapes) {
  test::ZeroComponent zeros = mochi_zeros();
  test::expect_exact_names(zeros);
}

TEST(MochiLoading, HasNoTextUpdateInTheLastBlock) {
  test::ZeroComponent zeros = mochi_zeros();
  zeros.add("transformer_blocks.47.attn1.to_add_out.weight", {1536, 3072});
  EXPECT_NE(test::load_complaint(zeros.component).find("1 unexpected"), std::string::npos);
}

TEST(MochiLoading, RefusesUnsupportedConfigs) {
  for (const auto& [field, value] : {std::pair{"qk_norm", nlohmann::json("layer_norm")},
                                     {"activation_fn", nlohmann::json("gelu")},
                                     {"attention_head_dim", nlohmann::json(33)},
                                     {"patch_size", nlohmann::json({2, 2})},
                                     {"text_embed_dim", nlohmann::json(4100)}}) {
    test::ZeroComponent zeros = mochi_zeros();
    zeros.component.config[field] = value;
    const std::string cause = test::load_complaint(zeros.component);
    EXPECT_NE(cause.find(field), std::string::npos) << cause;
    EXPECT_NE(cause.find("zeros/config.json"), std::string::npos) << cause;
  }
}

}  // namespace
}  // namespace sparsereel::models
