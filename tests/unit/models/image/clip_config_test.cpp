// Tests which configs of CLIP are accepted, and that errors about refused configs name a field.
#include "models/image/clip_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/image/processor_config.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const auto& parse, const json& config) {
  try {
    parse(config, "image_encoder/config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

json published_encoder() {
  return {{"model_type", "clip_vision_model"},
          {"hidden_act", "gelu"},
          {"hidden_size", 1280},
          {"intermediate_size", 5120},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 16},
          {"image_size", 224},
          {"patch_size", 14},
          {"layer_norm_eps", 1e-5},
          {"projection_dim", 1024},
          {"torch_dtype", "bfloat16"},
          {"num_channels", 3}};
}

TEST(ClipConfig, ReadsThePublishedEncoder) {
  const ClipVisionConfig config = parse_clip_vision_config(published_encoder(), "config.json");
  EXPECT_EQ(config.tokens(), 257);
  EXPECT_EQ(config.hidden_size, 1280);
  EXPECT_EQ(config.num_hidden_layers, 32);
}

TEST(ClipConfig, NamesTheInvalidField) {
  const std::pair<json, std::string> cases[] = {
      {{{"hidden_act", "quick_gelu"}}, "hidden_act"},
      {{{"hidden_act", nullptr}}, "hidden_act"},
      {{{"model_type", "siglip_vision_model"}}, "model_type"},
      {{{"patch_size", 15}}, "image_size"},
      {{{"num_attention_heads", 12}}, "hidden_size"},
      {{{"num_hidden_layers", 1}}, "num_hidden_layers"},
      {{{"num_channels", 4}}, "num_channels"},
      {{{"layer_norm_eps", -1}}, "layer_norm_eps"},
  };
  for (const auto& [change, field] : cases) {
    json config = published_encoder();
    config.update(change);
    EXPECT_THAT(error_of(parse_clip_vision_config, config), AllOf(HasSubstr("config.json"), HasSubstr(field)));
  }
}

TEST(ClipConfig, RefusesTheDefaultActivation) {
  json config = published_encoder();
  config.erase("hidden_act");
  EXPECT_THAT(error_of(parse_clip_vision_config, config), HasSubstr("quick_gelu"));
}

TEST(ImageProcessorConfig, ReadsSizesAsNumbersOrObjects) {
  const ImageProcessorConfig fallback = parse_image_processor_config(json::object(), "f");
  EXPECT_EQ(fallback.crop_size, 224);
  EXPECT_DOUBLE_EQ(fallback.image_std[2], 0.27577711);
  const json small = {{"size", {{"shortest_edge", 32}}}, {"crop_size", {{"height", 32}, {"width", 32}}}};
  EXPECT_EQ(parse_image_processor_config(small, "f").crop_size, 32);
  EXPECT_EQ(parse_image_processor_config({{"size", 48}, {"crop_size", 48}}, "f").crop_size, 48);
}

TEST(ImageProcessorConfig, NamesTheFieldOfUnsupportedPreprocessing) {
  const std::pair<json, std::string> cases[] = {
      {{{"do_resize", false}}, "do_resize"},
      {{{"do_normalize", false}}, "do_normalize"},
      {{{"resample", 2}}, "resample"},
      {{{"size", {{"height", 224}, {"width", 224}}}}, "size.height"},
      {{{"size", "large"}}, "size"},
      {{{"size", {{"shortest_edge", 256}}}}, "crop_size"},
      {{{"crop_size", {{"height", 224}, {"width", 112}}}}, "crop_size.height"},
      {{{"image_std", {0.2, 0.2, 0.0}}}, "image_std"},
      {{{"image_mean", {0.5}}}, "image_mean"},
      {{{"rescale_factor", 0}}, "rescale_factor"},
  };
  for (const auto& [config, field] : cases)
    EXPECT_THAT(error_of(parse_image_processor_config, config), HasSubstr(field)) << config;
}

}  // namespace
}  // namespace sparsereel::models
