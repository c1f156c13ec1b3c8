// CLIP's vision transformer (Radford et al., arXiv 2103.00020). Video models use the tokens that enter its last layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "models/image/clip_config.h"
#include "models/image/image_encoder.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/store/weights/weights.h"

namespace sparsereel::models {

// C = hidden_size, N = number of tokens: one for the whole image, then one for each patch, row by row.

struct ClipLayer {
  Norm norm1;  // [C]
  Linear qkv;  // [3 C, C]: q_proj, k_proj, v_proj stacked
  Linear out;  // [C, C]
  Norm norm2;  // [C]
  Linear fc1;  // [intermediate_size, C]
  Linear fc2;  // [C, intermediate_size]

  /// Lists the layer's weights. `name` is its prefix, "encoder.layers.0". If `fused`, the file stores q, k and v as one
  /// matrix.
  void weights(const Visit& visit, const std::string& name, const ClipVisionConfig& config, bool fused);
};

struct ClipEncoder : ImageEncoder {
  ClipVisionConfig config;
  Linear patch;                   // [C, 3 x patch_size^2], channel slowest
  at::Tensor class_embedding;     // [C]
  at::Tensor position_embedding;  // [N, C]
  Norm pre_norm;                  // [C]
  std::vector<ClipLayer> layers;  // all layers but the last
  uint64_t bytes = 0;

  /// Loads transformers' CLIPVisionModel or CLIPVisionModelWithProjection, or the vision part of the file that a video
  /// model's authors publish. The last layer, the weights after it and CLIP's text encoder are not read. Throws Error
  /// naming a field of config.json, or listing every weight that does not fit.
  static ClipEncoder load(const Component& component, at::Device device, at::ScalarType dtype);

  /// Returns transformers' hidden_states[-2], the output of the last but one layer.
  at::Tensor forward(const at::Tensor& pixels) const override;
  int64_t image_size() const override { return config.image_size; }
  int64_t tokens() const override { return config.tokens(); }
  int64_t width() const override { return config.hidden_size; }
  uint64_t weight_bytes() const override { return bytes; }
};

/// Calls ClipEncoder::load(), for ComponentLoaders::image_encoders.
std::unique_ptr<ImageEncoder> load_clip_encoder(const Component& component, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::models
