// T5 v1.1 text encoder (arXiv:1910.10683; v1.1: gated GELU, no tied projection).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/checkpoint/configs.h"
#include "models/weights/weights.h"

namespace sparsereel::models {

/// Weights as stored, so that on a CPU they can alias the mapped file. No biases anywhere.
struct T5Layer {
  at::Tensor attention_norm;     // [d_model]
  at::Tensor q, k, v;            // [heads * d_kv, d_model]
  at::Tensor attention_out;      // [d_model, heads * d_kv]
  at::Tensor feed_forward_norm;  // [d_model]
  at::Tensor wi_0, wi_1;         // [d_ff, d_model]: the GELU gate, and what it gates
  at::Tensor wo;                 // [d_model, d_ff]; fp32 where the rest is fp16, whose range it would leave
};

struct T5Encoder {
  T5Config config;
  at::Tensor shared;         // [vocab_size, d_model]
  at::Tensor relative_bias;  // [num_buckets, heads], of the first layer, used by all
  std::vector<T5Layer> layers;
  at::Tensor final_norm;  // [d_model]

  /// Throws Error naming config.json's field, or listing every weight that does not fit.
  static T5Encoder load(const Component& component, at::Device device, at::ScalarType dtype);

  /// ids int64 [B, L] -> hidden states [B, L, d_model] in the weights' dtype. No padding mask, as CogVideoX's pipeline
  /// does it. Throws Error on ids beyond vocab_size.
  at::Tensor forward(const at::Tensor& ids) const;

  /// load() and forward() in one, with the weights of a single layer on the device at a time: for one use of an encoder
  /// that need not or cannot be kept.
  static at::Tensor forward_streamed(const Component& component, at::Device device, at::ScalarType dtype,
                                     const at::Tensor& ids);
  /// Of all matrices in this dtype; the norms and the relative bias are nothing beside them.
  static uint64_t weight_bytes(const T5Config& config, at::ScalarType dtype);
};

/// Bucket of each (query, key) distance, int64 [length, length]: half of the buckets for keys behind, half for keys
/// ahead; in each half exact distances first, then logarithmically wider ones up to max_distance, then one for all
/// beyond.
at::Tensor relative_position_buckets(int64_t length, int64_t num_buckets, int64_t max_distance, at::Device device);

}  // namespace sparsereel::models
