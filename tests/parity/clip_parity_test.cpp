// Compares CLIP's vision tower and its preparation of pictures with transformers. The data come from make_clip.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <span>

#include "models/image/clip_encoder.h"
#include "models/image/clip_names.h"
#include "models/image/images.h"
#include "models/image/resize.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/safetensors.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

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

TEST_P(ClipParity, ReturnsTheTokensBeforeTheLastLayer) {
  const fs::path folder = kClip / "image_encoder";
  Component component = component_of(open_weights(folder / "model.safetensors"), clip_vision_part());
  component.config_file = (folder / "config.json").string();
  component.config = read_json(component.config_file);
  const ClipEncoder encoder = ClipEncoder::load(component, at::kCPU, at::kFloat);
  EXPECT_TRUE(close_to(encoder.forward(golden("pixels")), golden("tokens"), 1e-5));
}

TEST_P(ClipParity, ConvertsPicturesToTheSamePixels) {
  const std::string file = (kClip / "image_processor" / "preprocessor_config.json").string();
  const ImageProcessorConfig config = parse_image_processor_config(read_json(file), file);
  // A difference of one in a byte would be 0.007 of the scale, so every byte is the same.
  EXPECT_TRUE(close_to(encoder_pixels(picture_of(golden("picture").div(255)), config), golden("pixels"), 1e-6));
}

/// Returns the name that Wan's authors give to a tensor with this name in the library transformers.
std::string authors_name(std::string name) {
  const auto replace = [&](const char* from, const char* to) { name = std::regex_replace(name, std::regex(from), to); };
  replace("^vision_model\\.", "visual.");
  replace("visual\\.embeddings\\.class_embedding", "visual.cls_embedding");
  replace("visual\\.embeddings\\.position_embedding\\.weight", "visual.pos_embedding");
  replace("visual\\.embeddings\\.patch_embedding", "visual.patch_embedding");
  replace("pre_layrnorm", "pre_norm");
  replace("post_layernorm", "post_norm");
  replace("encoder\\.layers", "transformer");
  replace("layer_norm", "norm");
  replace("self_attn\\.out_proj", "attn.proj");
  replace("mlp\\.fc1", "mlp.0");
  replace("mlp\\.fc2", "mlp.2");
  return name == "visual_projection.weight" ? "visual.head" : name;
}

/// Writes the same weights as Wan's authors publish them: with q, k and v in one matrix, additional axes of size 1, and
/// tensors that do not belong to the vision tower.
fs::path authors_file(const StoredWeights& weights, const fs::path& file) {
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<std::byte>>> tensors;
  const auto add = [&](const std::string& name, const std::string& stored, bool below) {
    const auto& [number, entry] = weights.tensors.at(stored);
    const std::span<const std::byte> data = weights.files[number]->data(*entry);
    auto& [shape, bytes] = tensors[name];
    if (!below || shape.empty())
      shape = entry->shape;
    else
      shape[0] += entry->shape[0];
    bytes.insert(bytes.end(), data.begin(), data.end());
  };
  for (const auto& [name, place] : weights.tensors) {
    const size_t part = name.find("self_attn.q_proj");
    if (part != std::string::npos) {
      const std::string before = name.substr(0, part + 10), kind = name.substr(part + 16);
      const std::string fused = authors_name(before.substr(0, part)) + "attn.to_qkv" + kind;
      for (const char* each : {"q_proj", "k_proj", "v_proj"}) add(fused, before + each + kind, true);
    } else if (name.find("k_proj") == std::string::npos && name.find("v_proj") == std::string::npos) {
      add(authors_name(name), name, false);
    }
  }
  for (const char* name : {"visual.cls_embedding", "visual.pos_embedding"}) {
    std::vector<int64_t>& shape = tensors.at(name).first;
    shape.insert(shape.begin(), shape.size() == 1 ? 2 : 1, 1);
  }
  tensors["textual.head.0.weight"] = {{1}, std::vector<std::byte>(4)};
  tensors["log_scale"] = {{}, std::vector<std::byte>(4)};
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({.name = name, .dtype = Dtype::f32, .shape = tensor.first, .data = tensor.second});
  write_safetensors(file, views);
  return file;
}

TEST(ClipNames, MapTheFileOfTheAuthorsToTheSameEncoder) {
  const c10::InferenceMode inference;
  const test::TemporaryFolder temporary;
  const fs::path folder = kClip / "image_encoder";
  const StoredWeights weights = open_weights(folder / "model.safetensors");
  const fs::path file = authors_file(weights, temporary / "clip.safetensors");
  Component component = component_of(open_weights(file), clip_vision_part());
  component.config_file = (folder / "config.json").string();
  component.config = read_json(component.config_file);
  EXPECT_EQ(clip_vision_sizes(component.tensors), clip_vision_sizes(component.config, component.config_file));
  EXPECT_EQ(clip_vision_sizes(component.tensors), clip_vision_sizes(component_of(weights, clip_vision_part()).tensors));
  const ClipEncoder encoder = ClipEncoder::load(component, at::kCPU, at::kFloat);
  const Golden golden("clip_golden");
  EXPECT_TRUE(close_to(encoder.forward(golden["wide.pixels"]), golden["wide.tokens"], 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Pictures, ClipParity, ::testing::Values("wide", "tall", "square", "small"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sparsereel::models
