// Loading Wan: the names and shapes of the published transformers, and what is refused.
#include <gtest/gtest.h>

#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

test::ZeroComponent wan_zeros(const std::string& name) {
  return {"WanTransformer3DModel", "blocks", read_json(SPARSEREEL_TEST_DATA "/wan/dit_names.json").at(name)};
}

class PublishedWan : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedWan, LoadsByExactlyItsNamesAndShapes) {
  test::ZeroComponent zeros = wan_zeros(GetParam());
  test::expect_exact_names(zeros);
}

INSTANTIATE_TEST_SUITE_P(Wan, PublishedWan, ::testing::Values("2.1 1.3b", "2.1 14b", "2.2 5b"),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

TEST(WanLoading, RefusesWhatIsNotTextToVideo) {
  for (const auto& [field, value] : {std::pair{"image_dim", nlohmann::json(1280)},
                                     {"added_kv_proj_dim", nlohmann::json(5120)},
                                     {"pos_embed_seq_len", nlohmann::json(514)},
                                     {"qk_norm", nlohmann::json("layer_norm")},
                                     {"patch_size", nlohmann::json({2, 2})}}) {
    test::ZeroComponent zeros = wan_zeros("2.1 1.3b");
    zeros.component.config[field] = value;
    const std::string cause = test::load_complaint(zeros.component);
    EXPECT_NE(cause.find(field), std::string::npos) << cause;
    EXPECT_NE(cause.find("zeros/config.json"), std::string::npos) << cause;
  }
}

}  // namespace
}  // namespace sparsereel::models
