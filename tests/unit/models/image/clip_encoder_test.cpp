// Tests loading CLIP's image encoder with transformers' names or the authors' names, and the weights that are refused.
// tests/parity compares its output.
#include "models/image/clip_encoder.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/image/clip_names.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ClipEncoderTest : public ::testing::Test {
 protected:
  ClipEncoderTest() : component_(component_of(open_weights(folder_ / "model.safetensors"), clip_vision_part())) {
    component_.config_file = (folder_ / "config.json").string();
    component_.config = read_json(component_.config_file);
  }

  at::Tensor pixels() const { return at::linspace(-1, 1, 2 * 3 * 24 * 24).view({2, 3, 24, 24}); }
  std::string load_error() const {
    try {
      ClipEncoder::load(component_, at::kCPU, at::kFloat);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  c10::InferenceMode inference_;
  fs::path folder_ = fs::path(SPARSEREEL_TEST_DATA) / "clip" / "image_encoder";
  Component component_;
};

TensorTable renamed(const TensorTable& tensors, const auto& name_of) {
  TensorTable all;
  for (const auto& [name, place] : tensors) all[name_of(name)] = place;
  return all;
}

TEST_F(ClipEncoderTest, AcceptsNamesWithoutThePrefix) {
  const std::string prefix = "vision_model.";
  const at::Tensor expected = ClipEncoder::load(component_, at::kCPU, at::kFloat).forward(pixels());
  component_.tensors = renamed(component_.tensors, [&](const std::string& name) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : prefix + name;
  });
  component_.tensors.erase(prefix + "visual_projection.weight");
  EXPECT_TRUE(ClipEncoder::load(component_, at::kCPU, at::kFloat).forward(pixels()).equal(expected));
}

TEST_F(ClipEncoderTest, NeedsOnlyTheLayersThatItRuns) {
  const at::Tensor expected = ClipEncoder::load(component_, at::kCPU, at::kFloat).forward(pixels());
  std::erase_if(component_.tensors, [](const auto& tensor) {
    return tensor.first.find("layers.2.") != std::string::npos || tensor.first.find("post_") != std::string::npos ||
           tensor.first.starts_with("visual_projection");
  });
  EXPECT_TRUE(ClipEncoder::load(component_, at::kCPU, at::kFloat).forward(pixels()).equal(expected));
}

TEST_F(ClipEncoderTest, NamesMissingAndUnexpectedTensors) {
  const auto [file, first] = component_.tensors.begin()->second;
  TensorEntry extra = *first;  // a tensor that the model lacks; the error gives its name in the file
  extra.name = "vision_model.encoder.layers.0.layer_norm3.weight";
  component_.tensors[extra.name] = {file, &extra};
  component_.tensors.erase("vision_model.pre_layrnorm.bias");
  EXPECT_THAT(load_error(), HasSubstr("vision_model.pre_layrnorm.bias"));
  EXPECT_THAT(load_error(), HasSubstr("layers.0.layer_norm3.weight"));
}

TEST_F(ClipEncoderTest, RefusesPixelsOfAnotherSize) {
  const ClipEncoder encoder = ClipEncoder::load(component_, at::kCPU, at::kFloat);
  EXPECT_EQ(encoder.forward(pixels()).sizes(), at::IntArrayRef({2, encoder.tokens(), encoder.width()}));
  EXPECT_THROW(encoder.forward(at::zeros({1, 3, 24, 32})), Error);
  EXPECT_THROW(encoder.forward(at::zeros({1, 4, 24, 24})), Error);
}

TEST_F(ClipEncoderTest, InfersTheSizesOfItsConfigFromTensors) {
  EXPECT_EQ(clip_vision_sizes(component_.tensors), clip_vision_sizes(component_.config, component_.config_file));
  EXPECT_EQ(clip_vision_sizes(component_.tensors).size(), 5U);
}

TEST_F(ClipEncoderTest, LoadsBothClasses) {
  for (const std::string& name : clip_vision_part().classes) {
    component_.class_name = name;
    const auto encoder = load_image_encoder(component_, at::kCPU, at::kBFloat16);
    EXPECT_EQ(encoder->forward(pixels()).scalar_type(), at::kBFloat16);
    EXPECT_EQ(encoder->weight_bytes() * 2, load_image_encoder(component_, at::kMeta, at::kFloat)->weight_bytes());
  }
}

TEST_F(ClipEncoderTest, KeepsUnitScaleWithRandomWeights) {
  component_.random_seed = 0;
  component_.tensors.clear();
  component_.files.clear();
  const at::Tensor tokens = ClipEncoder::load(component_, at::kCPU, at::kFloat).forward(pixels());
  EXPECT_TRUE(at::isfinite(tokens).all().item<bool>());
  EXPECT_GT(tokens.std().item<double>(), 0.1);
}

}  // namespace
}  // namespace sparsereel::models
