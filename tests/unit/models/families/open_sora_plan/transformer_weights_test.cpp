// Tests loading Open-Sora-Plan: the names and shapes of the published transformer, and the configs of transformers and
// VAEs that are refused.
#include <gtest/gtest.h>

#include "models/families/open_sora_plan/config.h"
#include "models/families/open_sora_plan/vae_config.h"
#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

json published(const char* file) {
  return read_json(std::string(SPARSEREEL_TEST_DATA "/open_sora_plan/") + file).at("1.2.0");
}

test::ZeroComponent plan_zeros() {
  return {"OpenSoraT2V", "transformer_blocks", published("dit_names.json")};
}

/// Changes one field of a config and parses the config. Returns the message of the error; empty if there is none.
template <typename Parse>
std::string complaint_of(Parse parse, json config, const char* field, const json& value) {
  config[field] = value;
  try {
    parse(config, "zeros/config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OpenSoraPlanLoading, TakesExactlyThePublishedNamesAndShapes) {
  test::ZeroComponent zeros = plan_zeros();
  test::expect_exact_names(zeros);
}

TEST(OpenSoraPlanLoading, RefusesTransformersOfOtherVersions) {
  const json config = published("dit_names.json").at("config");
  EXPECT_NO_THROW(parse_open_sora_plan_config(config, "zeros/config.json"));
  for (const auto& [field, value] : {std::pair{"use_rope", json(false)},
                                     {"downsampler", json("k333_s222")},
                                     {"patch_size_t", json(2)},
                                     {"patch_size", json(nullptr)},
                                     {"attention_head_dim", json(88)},
                                     {"cross_attention_dim", json(2048)},
                                     {"out_channels", json(5)},
                                     {"activation_fn", json("geglu")},
                                     {"norm_type", json("ada_norm")},
                                     {"norm_elementwise_affine", json(true)},
                                     {"sample_size", json({90, 160, 1})},
                                     {"interpolation_scale_t", json(0)}}) {
    const std::string cause = complaint_of(parse_open_sora_plan_config, config, field, value);
    EXPECT_NE(cause.find(field), std::string::npos) << field << ": " << cause;
    EXPECT_NE(cause.find("zeros/config.json"), std::string::npos) << cause;
  }
}

TEST(OpenSoraPlanLoading, RefusesVaesOfOtherVersions) {
  const json config = published("vae_names.json").at("config");
  EXPECT_NO_THROW(parse_open_sora_plan_vae_config(config, "zeros/config.json"));
  for (const auto& [field, value] : {std::pair{"decoder_attention", json("AttnBlock3D")},
                                     {"decoder_conv_in", json("Conv2d")},
                                     {"attn_resolutions", json({16})},
                                     {"hidden_size", json(100)},
                                     {"hidden_size_mult", json({1, 2})},
                                     {"decoder_resnet_blocks", json({"ResnetBlock2D", "", "", ""})},
                                     {"decoder_spatial_upsample", json({"", "Upsample", "", ""})},
                                     {"decoder_temporal_upsample", json({"", "", "TimeUpsampleRes2x", ""})}}) {
    const std::string cause = complaint_of(parse_open_sora_plan_vae_config, config, field, value);
    const char* named =
        // The error names the list whose length differs.
        std::string(field) == "hidden_size_mult" ? "decoder_spatial_upsample" : field;
    EXPECT_NE(cause.find(named), std::string::npos) << field << ": " << cause;
  }
}

}  // namespace
}  // namespace sparsereel::models
