// Loading Wan: the names and shapes of the published transformers, and what is refused.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/dit/wan.h"
#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

test::ZeroComponent zeros_of(const std::string& name) {
  return {"WanTransformer3DModel", "blocks", read_json(SPARSEREEL_TEST_DATA "/wan/dit_names.json").at(name)};
}

std::string cause_of(const Component& component) {
  const c10::InferenceMode inference;
  try {
    load_wan_dit(component, at::kMeta, at::kBFloat16);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  return "";
}

class PublishedWan : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedWan, LoadsByExactlyItsNamesAndShapes) {
  test::ZeroComponent zeros = zeros_of(GetParam());
  EXPECT_EQ(cause_of(zeros.component), "");
  const TensorEntry* entry = zeros.component.tensors["proj_out.bias"].second;
  zeros.component.tensors.erase("proj_out.bias");
  EXPECT_NE(cause_of(zeros.component).find("proj_out.bias"), std::string::npos);
  zeros.component.tensors["proj_out.bias"] = {0, entry};
  zeros.add("proj_out.extra", {3});
  EXPECT_NE(cause_of(zeros.component).find("proj_out.extra"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Wan, PublishedWan, ::testing::Values("2.1 1.3b", "2.1 14b", "2.2 5b"),
                         [](const auto& test) { return "case" + std::to_string(test.index); });

TEST(WanLoading, RefusesWhatIsNotTextToVideo) {
  for (const auto& [field, value] : {std::pair{"image_dim", nlohmann::json(1280)},
                                     {"added_kv_proj_dim", nlohmann::json(5120)},
                                     {"pos_embed_seq_len", nlohmann::json(514)},
                                     {"qk_norm", nlohmann::json("layer_norm")},
                                     {"patch_size", nlohmann::json({2, 2})}}) {
    test::ZeroComponent zeros = zeros_of("2.1 1.3b");
    zeros.component.config[field] = value;
    const std::string cause = cause_of(zeros.component);
    EXPECT_NE(cause.find(field), std::string::npos) << cause;
    EXPECT_NE(cause.find("zeros/config.json"), std::string::npos) << cause;
  }
}

}  // namespace
}  // namespace sparsereel::models
