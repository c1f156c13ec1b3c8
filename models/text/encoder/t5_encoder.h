// T5 v1.1 and UMT5 text encoders (arXiv:1910.10683, arXiv:2304.09151; v1.1: gated GELU, no tied projection).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "models/layers/linear.h"
#include "models/store/weights/layer_weights.h"
#include "models/text/encoder/t5_config.h"
#include "models/text/encoder/text_encoder.h"

namespace sparsereel::models {

/// Weights as stored, so that a CPU can alias the mapped file. There are no biases.
struct T5Layer {
  at::Tensor attention_norm;     // [d_model]
  at::Tensor relative_bias;      // [num_buckets, heads] in UMT5's layers; undefined in T5's
  Linear q, k, v;                // [heads * d_kv, d_model]
  Linear attention_out;          // [d_model, heads * d_kv]
  at::Tensor feed_forward_norm;  // [d_model]
  Linear wi_0, wi_1;             // [d_ff, d_model]: the GELU gate, and the values that it gates
  /// [d_model, d_ff]. In fp16 encoders, this weight or its product is in fp32, because the product may exceed fp16's
  /// range.
  Linear wo;

  /// Lists the layer's weights. `name` is the prefix of their names: "encoder.block.0".
  void weights(const Visit& visit, const std::string& name, const T5Config& config, at::ScalarType dtype);
};

struct T5Encoder : TextEncoder {
  T5Config config;
  at::Tensor shared;  // [vocab_size, d_model]
  /// [num_buckets, heads]; in T5 the first layer's bias, which serves all layers; undefined in UMT5.
  at::Tensor relative_bias;
  std::vector<T5Layer> layers;
  at::Tensor final_norm;                        // [d_model]
  std::unique_ptr<LayerWeights> layer_weights;  // fetches the weights of `layers`
  uint64_t bytes = 0;                           // size of all weights, wherever they are kept
  uint64_t streamed = 0;                        // the result of streamed_bytes()
  bool again = false;                           // the result of rounds_again()

  /// Loads an encoder. Throws Error naming the field of config.json, or listing every weight that does not fit.
  /// Residence::file suits an encoder that is used once or does not fit into memory: forward() then reads the layers,
  /// and reports weights that do not fit. The component must then outlive the encoder.
  static T5Encoder load(const Component& component, at::Device device, WeightFormat format,
                        Residence residence = Residence::device);

  /// Returns the hidden states [B, L, d_model] of token ids int64 [B, L], in the weights' dtype. There is no padding
  /// mask: padding is attended to like text. To mask it, pass only the real tokens. Throws Error for ids beyond
  /// vocab_size.
  at::Tensor forward(const at::Tensor& ids) const override;
  int64_t vocab_size() const override { return config.vocab_size; }
  uint64_t weight_bytes() const override { return bytes; }
  uint64_t streamed_bytes() const override { return streamed; }
  bool rounds_again() const override { return again; }
};

/// Calls T5Encoder::load(), for the table of loaders.
std::unique_ptr<TextEncoder> load_t5_encoder(const Component& component, at::Device device, WeightFormat format,
                                             Residence residence);

/// Returns the bucket of each (query, key) distance, int64 CPU [length, length]. Half of the buckets are for keys
/// before the query, half for keys after the query. Each half has one bucket per short distance, then logarithmically
/// wider buckets up to max_distance, then one bucket for all larger distances.
at::Tensor relative_position_buckets(int64_t length, int64_t num_buckets, int64_t max_distance);

}  // namespace sparsereel::models
