// Qwen3-VL's vision model (arXiv 2511.21631): a vision transformer over patches of a picture of any shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "models/image/patches.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/store/weights/weights.h"
#include "models/text/encoder/qwen3_vision_config.h"
#include "models/text/encoder/text_vision.h"

namespace sparsereel::models {

// C = hidden_size, S = patches_a_token() x C.

struct Qwen3VisionLayer {
  Norm norm1;  // [C]
  Linear qkv;  // [3 C, C]
  Linear out;  // [C, C]
  Norm norm2;  // [C]
  Linear fc1;  // [intermediate_size, C]
  Linear fc2;  // [C, intermediate_size]

  /// Lists the layer's weights. `name` is their prefix: "model.visual.blocks.0".
  void weights(const Visit& visit, const std::string& name, const Qwen3VisionConfig& config);
};

/// Makes one token of each square of patches.
struct Qwen3Merger {
  Norm norm;         // [C] for each patch, or [S] for each square
  Linear fc1, fc2;   // [S, S], [out_hidden_size, S]
  bool joins_first;  // true if the norm follows the joining of a square's patches, false if it comes before

  void weights(const Visit& visit, const std::string& name, const Qwen3VisionConfig& config);
};

struct Qwen3Vision : TextVision {
  Qwen3VisionConfig config;
  PatchConfig patches;
  Linear patch;          // [C, patch_elements()]
  at::Tensor positions;  // fp32 [num_position_embeddings, C]: embeddings of a square grid
  std::vector<Qwen3VisionLayer> layers;
  Qwen3Merger merger{.norm = {}, .fc1 = {}, .fc2 = {}, .joins_first = false};
  std::vector<Qwen3Merger> layer_mergers;  // one for each entry of deepstack_visual_indexes
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  uint64_t bytes = 0;

  /// Loads the vision model of a text encoder's file. The language model is not read. `patches` is the content of
  /// preprocessor_config.json. Throws Error naming the field of config.json, listing every weight that does not fit,
  /// naming a field in which both configs differ, or saying that the file has no vision model.
  static Qwen3Vision load(const Component& component, const PatchConfig& patches, at::Device device,
                          at::ScalarType dtype);

  /// Returns a picture's tokens, one for each square of patches: those after the last layer, and those after each layer
  /// that deepstack_visual_indexes names. All patches attend to each other.
  TextPicture forward(const PicturePatches& picture) const;
  TextPicture look(const Picture& picture) const override { return forward(picture_patches(picture, patches)); }
  PictureMarks marks() const override {
    return {.begin = config.vision_start_token, .picture = config.image_token, .end = config.vision_end_token};
  }
  uint64_t weight_bytes() const override { return bytes; }
  uint64_t look_bytes(int64_t height, int64_t width) const override;

 private:
  void weights(const Visit& visit);
};

/// Calls Qwen3Vision::load(), for the table of loaders.
std::unique_ptr<TextVision> load_qwen3_vision(const Component& component, at::Device device, at::ScalarType dtype,
                                              const PatchConfig& patches);

}  // namespace sparsereel::models
