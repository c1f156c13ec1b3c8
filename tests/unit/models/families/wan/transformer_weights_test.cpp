// Tests loading Wan: the names and shapes of the published transformers, a norm that is ignored, and the configs that
// are refused.
#include <gtest/gtest.h>

#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

/// Returns the names and shapes of the published models' tensors, for text to video and image to video.
nlohmann::json published_wan() {
  nlohmann::json all = read_json(SPARSEREEL_TEST_DATA "/wan/dit_names.json");
  all.update(read_json(SPARSEREEL_TEST_DATA "/wan_i2v/dit_names.json"));
  return all;
}

test::ZeroComponent wan_zeros(const std::string& name) {
  return {"WanTransformer3DModel", "blocks", published_wan().at(name)};
}

class PublishedWan : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedWan, LoadsWithExactlyThePublishedNamesAndShapes) {
  test::ZeroComponent zeros = wan_zeros(GetParam());
  test::expect_exact_names(zeros);
}

INSTANTIATE_TEST_SUITE_P(Wan, PublishedWan,
                         ::testing::Values("2.1 1.3b", "2.1 14b", "2.2 5b", "2.1 i2v 14b", "2.1 flf2v 14b",
                                           "2.2 i2v a14b"),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

TEST(WanLoading, IgnoresTheUnusedNorm) {
  test::ZeroComponent zeros = wan_zeros("2.1 i2v 14b");
  zeros.add("blocks.3.attn2.norm_added_q.weight", {5120});
  EXPECT_EQ(test::load_complaint(zeros.component), "");
  zeros.add("blocks.3.attn2.norm_added_x.weight", {5120});
  EXPECT_NE(test::load_complaint(zeros.component).find("norm_added_x"), std::string::npos);
}

TEST(WanLoading, RefusesIncompleteImageFieldsAndUnsupportedConfigs) {
  for (const auto& [field, value] : {std::pair{"added_kv_proj_dim", nlohmann::json(5120)},
                                     {"pos_embed_seq_len", nlohmann::json(514)},
                                     {"qk_norm", nlohmann::json("layer_norm")},
                                     {"patch_size", nlohmann::json({2, 2})}}) {
    test::ZeroComponent zeros = wan_zeros("2.1 1.3b");
    zeros.component.config[field] = value;
    const std::string cause = test::load_complaint(zeros.component);
    EXPECT_NE(cause.find(field), std::string::npos) << cause;
    EXPECT_NE(cause.find("zeros/config.json"), std::string::npos) << cause;
  }
  for (const auto& value : {nlohmann::json(), nlohmann::json(1280)}) {
    test::ZeroComponent zeros = wan_zeros("2.1 i2v 14b");
    zeros.component.config["added_kv_proj_dim"] = value;
    const std::string cause = test::load_complaint(zeros.component);
    EXPECT_NE(cause.find("zeros/config.json: added_kv_proj_dim"), std::string::npos) << cause;
  }
}

}  // namespace
}  // namespace sparsereel::models
