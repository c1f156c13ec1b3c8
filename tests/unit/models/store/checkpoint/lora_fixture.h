// Writes LoRA files for tests, and adds them to test checkpoints.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/lora.h"
#include "models/store/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {

/// A tensor of a LoRA file. All its elements are equal.
struct LoraTensor {
  std::string name;
  std::vector<int64_t> shape;
  float value = 1;
  Dtype dtype = Dtype::f32;
};

/// Returns `others` and tensors for layers that only image-to-video models have.
inline std::vector<LoraTensor> image_to_video(const std::vector<LoraTensor>& others) {
  std::vector<LoraTensor> all = {{"diffusion_model.patch_embedding.diff", {32, 36, 1, 2, 2}},
                                 {"diffusion_model.blocks.0.cross_attn.norm_k_img.diff", {32}},
                                 {"diffusion_model.img_emb.proj.1.diff_b", {32}}};
  for (const char* layer : {"k_img", "v_img"}) {
    const std::string name = "diffusion_model.blocks.1.cross_attn." + std::string(layer);
    all.push_back({name + ".lora_down.weight", {2, 32}});
    all.push_back({name + ".lora_up.weight", {32, 2}});
    all.push_back({name + ".alpha", {}});
  }
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

class Lora : public ::testing::Test {
 protected:
  static inline const std::filesystem::path kData = SPARSEREEL_TEST_DATA;
  static inline const std::string kQuery = "transformer.transformer_blocks.0.attn1.to_q";

  std::filesystem::path write(const std::vector<LoraTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {}) const {
    std::vector<std::vector<float>> data;
    std::vector<TensorView> views;
    for (const LoraTensor& tensor : tensors) {
      size_t count = 1;
      for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
      data.emplace_back(count, tensor.value);
      views.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
    }
    for (size_t i = 0; i < views.size(); ++i) views[i].data = std::as_bytes(std::span(data[i]));
    write_safetensors(folder_ / "a.safetensors", views, metadata);
    return folder_ / "a.safetensors";
  }
  testing::AssertionResult refused(const std::vector<LoraTensor>& tensors, const std::vector<std::string>& parts,
                                   const std::map<std::string, std::string>& metadata = {}) const {
    const std::filesystem::path file = write(tensors, metadata);
    std::vector<std::string> all = parts;
    all.push_back(file.string());
    return test::throws_error([&] { read_lora(file); }, all);
  }
  /// Adds LoRAs to the checkpoint `model`. Returns the changes that they make to the weights of `component`.
  static WeightDeltas added(const std::string& model, const std::string& loras, const std::string& component) {
    Checkpoint folder = Checkpoint::open(kData / model);
    add_loras(folder, describe(folder), parse_loras(loras));
    return folder.component(component).deltas;
  }
  static std::vector<std::string> warnings(const std::string& model, const std::filesystem::path& file,
                                           bool strict = false) {
    Checkpoint folder = Checkpoint::open(kData / model);
    return add_loras(folder, describe(folder), {{.file = file}}, strict);
  }
  static testing::AssertionResult does_not_fit(const std::string& model, const std::string& loras,
                                               const std::vector<std::string>& parts) {
    return test::throws_error([&] { added(model, loras, "transformer"); }, parts);
  }

  test::TemporaryFolder folder_;
};

}  // namespace sparsereel::models
