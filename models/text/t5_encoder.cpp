// T5 v1.1 encoder forward pass; dtypes follow transformers' T5EncoderModel.
#include "models/text/t5_encoder.h"

#include <ATen/ATen.h>

#include <cmath>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

T5Layer load_layer(WeightReader& weights, const T5Config& config, int64_t index) {
  const int64_t inner = config.num_heads * config.d_kv;
  const std::string block = "encoder.block." + std::to_string(index);
  const std::string attention = block + ".layer.0.", feed_forward = block + ".layer.1.";
  T5Layer layer;
  layer.attention_norm = weights.tensor(attention + "layer_norm.weight", {config.d_model});
  layer.q = weights.tensor(attention + "SelfAttention.q.weight", {inner, config.d_model});
  layer.k = weights.tensor(attention + "SelfAttention.k.weight", {inner, config.d_model});
  layer.v = weights.tensor(attention + "SelfAttention.v.weight", {inner, config.d_model});
  layer.attention_out = weights.tensor(attention + "SelfAttention.o.weight", {config.d_model, inner});
  layer.feed_forward_norm = weights.tensor(feed_forward + "layer_norm.weight", {config.d_model});
  layer.wi_0 = weights.tensor(feed_forward + "DenseReluDense.wi_0.weight", {config.d_ff, config.d_model});
  layer.wi_1 = weights.tensor(feed_forward + "DenseReluDense.wi_1.weight", {config.d_ff, config.d_model});
  const std::string wo = feed_forward + "DenseReluDense.wo.weight";
  const std::vector<int64_t> wo_shape = {config.d_model, config.d_ff};
  layer.wo = weights.dtype() == at::kHalf ? weights.tensor_fp32(wo, wo_shape) : weights.tensor(wo, wo_shape);
  return layer;
}

/// x / sqrt(mean(x^2)) * weight: no mean is subtracted. The statistics and the division are fp32, the product with the
/// weight in its dtype.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor x32 = x.to(at::kFloat);
  const at::Tensor normed = x32 * at::rsqrt(x32.square().mean(-1, /*keepdim=*/true) + epsilon);
  return weight * normed.to(weight.scalar_type());
}

/// Brings fp16 infinities back into range, as the reference does after each sublayer.
at::Tensor clamp_infinities(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf || !at::isinf(x).any().item<bool>()) return x;
  const double limit = 65504.0 - 1000.0;
  return at::clamp(x, -limit, limit);
}

/// x [B, L, d_model], bias [1, heads, L, L] added to the scores, which are not scaled by 1 / sqrt(d_kv).
at::Tensor self_attention(const T5Layer& layer, const at::Tensor& x, const at::Tensor& bias, int64_t d_kv) {
  const auto heads = [&](const at::Tensor& weight) {
    return at::linear(x, weight).unflatten(-1, {-1, d_kv}).transpose(1, 2);  // [B, heads, L, d_kv]
  };
  const at::Tensor attended = at::scaled_dot_product_attention(heads(layer.q), heads(layer.k), heads(layer.v), bias,
                                                               /*dropout_p=*/0.0, /*is_causal=*/false, /*scale=*/1.0);
  return at::linear(attended.transpose(1, 2).flatten(2), layer.attention_out);
}

at::Tensor feed_forward(const T5Layer& layer, const at::Tensor& x) {
  const at::Tensor gated = at::gelu(at::linear(x, layer.wi_0), "tanh") * at::linear(x, layer.wi_1);
  return at::linear(gated.to(layer.wo.scalar_type()), layer.wo);
}

/// Everything but the layers and the last norm.
T5Encoder load_embeddings(WeightReader& weights, const T5Config& config) {
  T5Encoder encoder;
  encoder.config = config;
  const std::string tied =
      "encoder.embed_tokens.weight";  // some files hold the embedding under its other name, or under both
  const bool has_shared = weights.contains("shared.weight") || !weights.contains(tied);
  if (has_shared) weights.ignore_prefix(tied);
  weights.ignore_prefix("decoder.");  // whole T5 checkpoints serve too
  weights.ignore_prefix("lm_head.");
  encoder.shared = weights.tensor(has_shared ? "shared.weight" : tied, {config.vocab_size, config.d_model});
  encoder.relative_bias = weights.tensor("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                                         {config.relative_attention_num_buckets, config.num_heads});
  return encoder;
}

void load_final_norm(WeightReader& weights, T5Encoder& encoder) {
  encoder.final_norm = weights.tensor("encoder.final_layer_norm.weight", {encoder.config.d_model});
  weights.check_complete();
}

void check_ids(const at::Tensor& ids, const T5Config& config) {
  const auto largest = ids.max().item<int64_t>();
  if (largest >= config.vocab_size) {
    throw bad_input("the tokenizer gave id " + std::to_string(largest) + ", but the text encoder's vocab_size is " +
                        std::to_string(config.vocab_size),
                    "take tokenizer and text_encoder from the same checkpoint");
  }
}

/// The hidden states before the last norm; layer(i) gives layer i, by value or by reference.
template <typename LayerOf>
at::Tensor run_layers(const T5Encoder& encoder, const at::Tensor& ids, const LayerOf& layer_of) {
  const T5Config& config = encoder.config;
  check_ids(ids, config);
  const at::Device device = encoder.shared.device();
  const at::Tensor buckets = relative_position_buckets(ids.size(1), config.relative_attention_num_buckets,
                                                       config.relative_attention_max_distance, device);
  const at::Tensor bias = at::embedding(encoder.relative_bias, buckets).permute({2, 0, 1}).unsqueeze(0).contiguous();
  at::Tensor x = at::embedding(encoder.shared, ids.to(device));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const T5Layer& layer = layer_of(i);
    const at::Tensor attention_in = rms_norm(x, layer.attention_norm, config.layer_norm_epsilon);
    x = clamp_infinities(x + self_attention(layer, attention_in, bias, config.d_kv));
    x = clamp_infinities(x + feed_forward(layer, rms_norm(x, layer.feed_forward_norm, config.layer_norm_epsilon)));
  }
  return x;
}

}  // namespace

at::Tensor relative_position_buckets(int64_t length, int64_t num_buckets, int64_t max_distance, at::Device device) {
  const int64_t half = num_buckets / 2, max_exact = half / 2;
  const at::Tensor position = at::arange(length, at::TensorOptions().dtype(at::kLong).device(device));
  const at::Tensor ahead = position.unsqueeze(0) - position.unsqueeze(1);  // key - query
  const at::Tensor distance = ahead.abs();
  const double octaves = std::log(static_cast<double>(max_distance) / static_cast<double>(max_exact));
  // fp32 and in this order, as the reference computes it: distances at a bucket's edge depend on the rounding.
  const at::Tensor log_distance = at::log(distance.clamp_min(1).to(at::kFloat) / max_exact);
  const at::Tensor wide = (max_exact + (log_distance / octaves * (half - max_exact)).to(at::kLong)).clamp_max(half - 1);
  return at::where(distance < max_exact, distance, wide) + (ahead > 0).to(at::kLong) * half;
}

T5Encoder T5Encoder::load(const Component& component, at::Device device, at::ScalarType dtype) {
  WeightReader weights(component, device, dtype);
  T5Encoder encoder = load_embeddings(weights, parse_t5_config(component.config, component.config_file));
  for (int64_t i = 0; i < encoder.config.num_layers; ++i)
    encoder.layers.push_back(load_layer(weights, encoder.config, i));
  load_final_norm(weights, encoder);
  return encoder;
}

at::Tensor T5Encoder::forward(const at::Tensor& ids) const {
  const auto layer_of = [this](int64_t i) -> const T5Layer& { return layers[static_cast<size_t>(i)]; };
  return rms_norm(run_layers(*this, ids, layer_of), final_norm, config.layer_norm_epsilon);
}

at::Tensor T5Encoder::forward_streamed(const Component& component, at::Device device, at::ScalarType dtype,
                                       const at::Tensor& ids) {
  WeightReader weights(component, device, dtype);
  T5Encoder encoder = load_embeddings(weights, parse_t5_config(component.config, component.config_file));
  const at::Tensor x = run_layers(encoder, ids, [&](int64_t i) { return load_layer(weights, encoder.config, i); });
  load_final_norm(weights, encoder);
  return rms_norm(x, encoder.final_norm, encoder.config.layer_norm_epsilon);
}

uint64_t T5Encoder::weight_bytes(const T5Config& config, at::ScalarType dtype) {
  const int64_t layer = 4 * config.d_model * config.num_heads * config.d_kv + 3 * config.d_model * config.d_ff;
  const int64_t wide = dtype == at::kHalf ? config.d_model * config.d_ff : 0;  // wo is fp32 beside fp16
  return static_cast<uint64_t>((config.num_layers * (layer + wide) + config.vocab_size * config.d_model) *
                               static_cast<int64_t>(c10::elementSize(dtype)));
}

}  // namespace sparsereel::models
