// T5 v1.1 and UMT5 text encoders (arXiv:1910.10683, arXiv:2304.09151; v1.1: gated GELU, no tied projection).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "models/layers/linear.h"
#include "models/store/weights/load_layers.h"
#include "models/text/encoder/t5_config.h"
#include "models/text/encoder/text_encoder.h"

namespace sparsereel::models {

/// Weights as stored, so that on a CPU they can alias the mapped file. No biases anywhere.
struct T5Layer {
  at::Tensor attention_norm;     // [d_model]
  at::Tensor relative_bias;      // [num_buckets, heads], of UMT5's layers; undefined in T5's
  Linear q, k, v;                // [heads * d_kv, d_model]
  Linear attention_out;          // [d_model, heads * d_kv]
  at::Tensor feed_forward_norm;  // [d_model]
  Linear wi_0, wi_1;             // [d_ff, d_model]: the GELU gate, and what it gates
  Linear wo;  // [d_model, d_ff]; fp32, or its product is, where the rest is fp16, whose range it would leave

  /// `name`: the layer's, "encoder.block.0".
  void weights(const Visit& visit, const std::string& name, const T5Config& config, at::ScalarType dtype);
};

struct T5Encoder : TextEncoder {
  T5Config config;
  at::Tensor shared;         // [vocab_size, d_model]
  at::Tensor relative_bias;  // [num_buckets, heads], of T5's first layer, used by all; undefined in UMT5
  std::vector<T5Layer> layers;
  at::Tensor final_norm;                        // [d_model]
  std::unique_ptr<LayerWeights> layer_weights;  // brings those of `layers`
  uint64_t bytes = 0;                           // of all weights, wherever they wait
  uint64_t streamed = 0;                        // streamed_bytes()
  bool again = false;                           // some were rounded a second time

  /// Throws Error naming config.json's field, or listing every weight that does not fit. With Residence::file, for an
  /// encoder that is used once and need not or cannot be kept, forward() reads the layers and lists; the component must
  /// then outlive the encoder.
  static T5Encoder load(const Component& component, at::Device device, WeightFormat format,
                        Residence residence = Residence::device);

  /// ids int64 [B, L] -> hidden states [B, L, d_model] in the weights' dtype. No padding mask: padding is attended
  /// to like text, so who wants it masked gives the real tokens only. Throws Error on ids beyond vocab_size.
  at::Tensor forward(const at::Tensor& ids) const override;
  int64_t vocab_size() const override { return config.vocab_size; }
  uint64_t weight_bytes() const override { return bytes; }
  uint64_t streamed_bytes() const override { return streamed; }
  bool rounds_again() const override { return again; }
};

/// T5Encoder::load() for the table of loaders.
std::unique_ptr<TextEncoder> load_t5_encoder(const Component& component, at::Device device, WeightFormat format,
                                             Residence residence);

/// Bucket of each (query, key) distance, int64 CPU [length, length]: half of the buckets for keys behind, half for keys
/// ahead; in each half exact distances first, then logarithmically wider ones up to max_distance, then one for all
/// beyond.
at::Tensor relative_position_buckets(int64_t length, int64_t num_buckets, int64_t max_distance);

}  // namespace sparsereel::models
