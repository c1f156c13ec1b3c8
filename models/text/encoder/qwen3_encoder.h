// Qwen3's language model (arXiv 2505.09388) as a text encoder: the hidden states after some of its layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "models/layers/linear.h"
#include "models/store/weights/layer_weights.h"
#include "models/text/encoder/qwen3_config.h"
#include "models/text/encoder/text_encoder.h"

namespace sparsereel::models {

/// Weights as stored. There are no biases.
struct Qwen3Layer {
  at::Tensor attention_norm;     // [hidden_size]
  Linear q;                      // [num_attention_heads * head_dim, hidden_size]
  Linear k, v;                   // [num_key_value_heads * head_dim, hidden_size]
  at::Tensor q_norm, k_norm;     // [head_dim]
  Linear attention_out;          // [hidden_size, num_attention_heads * head_dim]
  at::Tensor feed_forward_norm;  // [hidden_size]
  Linear feed_forward_in;        // [2 * intermediate_size, hidden_size]: the values, then the gate
  Linear feed_forward_out;       // [hidden_size, intermediate_size]

  /// Lists the layer's weights. `name` is the prefix of their names: "model.language_model.layers.0".
  void weights(const Visit& visit, const std::string& name, const Qwen3Config& config);
};

struct Qwen3Encoder : TextEncoder {
  Qwen3Config config;
  /// [vocab_size, hidden_size]. It is not copied to the device, because a prompt needs few rows: these are read from
  /// the mapped file, in the file's dtype. Random weights are made on the device, where they take less time.
  Linear embedding;
  std::vector<Qwen3Layer> layers;               // the model's first layers; later ones are not loaded
  std::unique_ptr<LayerWeights> layer_weights;  // fetches the weights of `layers`
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  uint64_t bytes = 0;     // size of all weights that are used, wherever they are kept
  uint64_t streamed = 0;  // the result of streamed_bytes()
  bool again = false;     // the result of rounds_again()

  /// Loads the first `layers` layers of a model, usually fewer than the config's num_hidden_layers. Throws Error naming
  /// the field of config.json, or listing every weight that does not fit. Residence::file suits an encoder that is used
  /// once or does not fit into memory: forward() then reads the layers, and reports weights that do not fit. The
  /// component must then outlive the encoder.
  static Qwen3Encoder load(const Component& component, at::Device device, WeightFormat format, Residence residence,
                           int64_t layers);

  /// Returns the residual stream [B, L, hidden_size] of token ids int64 [B, L] after the last of `layers`, without the
  /// model's final norm, in the run's dtype. Attention is causal, and all tokens are real: there is no padding mask.
  /// Throws Error for ids beyond vocab_size.
  at::Tensor forward(const at::Tensor& ids) const override { return forward_with(ids, {}); }
  at::Tensor forward_with(const at::Tensor& ids, const std::vector<TextPicture>& pictures) const override;
  int64_t vocab_size() const override { return config.vocab_size; }
  uint64_t weight_bytes() const override { return bytes; }
  uint64_t streamed_bytes() const override { return streamed; }
  bool rounds_again() const override { return again; }
};

}  // namespace sparsereel::models
