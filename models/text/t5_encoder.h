// T5 v1.1 text encoder (arXiv:1910.10683; v1.1: gated GELU, no tied projection).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/checkpoint/configs.h"
#include "models/checkpoint/weights.h"

namespace sparsereel::models {

struct T5Layer {
  at::Tensor attention_norm;  // [d_model]
  at::Tensor qkv;             // [3 * heads * d_kv, d_model]: q, k, v stacked, no bias
  at::Tensor attention_out;   // [d_model, heads * d_kv]
  at::Tensor feed_forward_norm;  // [d_model]
  at::Tensor wi;              // [2 * d_ff, d_model]: wi_0 (GELU gate) then wi_1
  at::Tensor wo;              // [d_model, d_ff]
};

struct T5Encoder {
  T5Config config;
  at::Tensor shared;         // [vocab_size, d_model]
  at::Tensor relative_bias;  // [num_buckets, heads], of the first layer, used by all
  std::vector<T5Layer> layers;
  at::Tensor final_norm;     // [d_model]

  static T5Encoder load(const Component& component, at::Device device, at::ScalarType dtype);

  /// ids int64 [B, L] -> hidden states [B, L, d_model] in the weights' dtype. No padding mask, as CogVideoX's pipeline does it.
  at::Tensor forward(const at::Tensor& ids) const;
};

}  // namespace sparsereel::models
