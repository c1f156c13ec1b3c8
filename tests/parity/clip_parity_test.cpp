// CLIP's vision tower and its preparation of pictures against transformers; data from make_clip.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "models/checkpoint/checkpoint.h"
#include "models/image/clip_encoder.h"
#include "models/image/clip_names.h"
#include "models/image/encoder_pixels.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::close_to;
using test::Golden;

const fs::path kClip = fs::path(SPARSEREEL_TEST_DATA) / "clip";

class ClipParity : public ::testing::TestWithParam<const char*> {
 protected:
  at::Tensor golden(const std::string& key) const { return golden_[GetParam() + ("." + key)]; }

  c10::InferenceMode inference_;
  Golden golden_{"clip_golden"};
};

TEST_P(ClipParity, TokensAreThoseBeforeTheLastLayer) {
  const fs::path folder = kClip / "image_encoder";
  Component component = component_of(open_weights(folder / "model.safetensors"), clip_vision_part());
  component.config_file = (folder / "config.json").string();
  component.config = read_json(component.config_file);
  const ClipEncoder encoder = ClipEncoder::load(component, at::kCPU, at::kFloat);
  EXPECT_TRUE(close_to(encoder.forward(golden("pixels")), golden("tokens"), 1e-5));
}

TEST_P(ClipParity, PicturesBecomeTheSamePixels) {
  const std::string file = (kClip / "image_processor" / "preprocessor_config.json").string();
  const ImageProcessorConfig config = parse_image_processor_config(read_json(file), file);
  // A step of 1/255 is 0.007 of the scale: every byte is the same.
  EXPECT_TRUE(close_to(encoder_pixels(golden("picture").div(255), config), golden("pixels"), 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Pictures, ClipParity, ::testing::Values("wide", "tall", "square", "small"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sparsereel::models
