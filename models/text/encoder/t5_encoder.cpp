// Forward pass of the T5 v1.1 and UMT5 encoders. dtypes follow transformers' T5EncoderModel and UMT5EncoderModel.
#include "models/text/encoder/t5_encoder.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "attention/token_gather.h"
#include "hilbert/error.h"
#include "models/layers/norm.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {
namespace {

/// Brings fp16 infinities back into range, as the reference does after each sublayer.
at::Tensor clamp_infinities(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf || !at::isinf(x).any().item<bool>()) return x;
  const double limit = 65504.0 - 1000.0;
  return at::clamp(x, -limit, limit);
}

/// Returns table[ids] with our own kernel, because torch's takes 60 ms to load on a GPU.
at::Tensor rows_of(const at::Tensor& table, const at::Tensor& ids) {
  return attention::gather_tokens(table.unsqueeze(0), ids.flatten()).view({ids.size(0), ids.size(1), table.size(1)});
}

/// Computes the self-attention of a layer. x is [B, L, d_model]. bias [1, heads, L, L] is added to the scores, which
/// are not scaled by 1 / sqrt(d_kv).
at::Tensor self_attention(const T5Layer& layer, const at::Tensor& x, const at::Tensor& bias, int64_t d_kv) {
  const auto heads = [&](const Linear& projection) {
    return linear(x, projection).unflatten(-1, {-1, d_kv}).transpose(1, 2);  // [B, heads, L, d_kv]
  };
  const at::Tensor attended = at::scaled_dot_product_attention(heads(layer.q), heads(layer.k), heads(layer.v), bias,
                                                               /*dropout_p=*/0.0, /*is_causal=*/false, /*scale=*/1.0);
  return linear(attended.transpose(1, 2).flatten(2), layer.attention_out);
}

at::Tensor feed_forward(const T5Layer& layer, const at::Tensor& x) {
  const at::Tensor gated = linear_gelu_tanh(x, layer.wi_0) * linear(x, layer.wi_1);
  return linear(gated.scalar_type() == at::kHalf ? gated.to(at::kFloat) : gated, layer.wo);
}

void list_relative_bias(at::Tensor& bias, const Visit& visit, const std::string& layer, const T5Config& config) {
  visit(bias, parameter(layer + ".layer.0.SelfAttention.relative_attention_bias.weight",
                        {config.relative_attention_num_buckets, config.num_heads}));
}

/// Visits all weights that are not in a layer.
void list_ends(T5Encoder& encoder, const Visit& visit, const std::string& embedding) {
  const T5Config& config = encoder.config;
  visit(encoder.shared, parameter(embedding, {config.vocab_size, config.d_model}));
  if (!config.bias_per_layer) list_relative_bias(encoder.relative_bias, visit, "encoder.block.0", config);
  visit(encoder.final_norm, parameter("encoder.final_layer_norm.weight", {config.d_model}));
}

std::vector<Slots> list_layers(T5Encoder& encoder, at::ScalarType dtype) {
  encoder.layers.resize(static_cast<size_t>(encoder.config.num_layers));
  std::vector<Slots> slots;
  for (T5Layer& layer : encoder.layers) {
    const std::string name = "encoder.block." + std::to_string(slots.size());
    slots.push_back(slots_of([&](const Visit& visit) { layer.weights(visit, name, encoder.config, dtype); }));
  }
  return slots;
}

constexpr const char* kShared = "shared.weight";

/// Returns the name under which the file has the embedding. Files have it under one of two names or under both.
/// Complete T5 checkpoints are accepted too.
std::string embedding_name(WeightReader& reader) {
  const std::string tied = "encoder.embed_tokens.weight";
  reader.ignore_prefix("decoder.");
  reader.ignore_prefix("lm_head.");
  if (!reader.contains(kShared) && reader.contains(tied)) return tied;
  reader.ignore_prefix(tied);
  return kShared;
}

void check_ids(const at::Tensor& ids, const T5Config& config) {
  const auto largest = ids.max().item<int64_t>();
  if (largest >= config.vocab_size) {
    throw bad_input("the tokenizer gave id " + std::to_string(largest) + ", but the text encoder's vocab_size is " +
                        std::to_string(config.vocab_size),
                    "take tokenizer and text_encoder from the same checkpoint");
  }
}

}  // namespace

at::Tensor relative_position_buckets(int64_t length, int64_t num_buckets, int64_t max_distance) {
  const int64_t half = num_buckets / 2, max_exact = half / 2;
  const at::Tensor position = at::arange(length, at::kLong);
  const at::Tensor ahead = position.unsqueeze(0) - position.unsqueeze(1);  // key - query
  const at::Tensor distance = ahead.abs();
  const double octaves = std::log(static_cast<double>(max_distance) / static_cast<double>(max_exact));
  // In fp32 and in the reference's order, because distances at a bucket's edge depend on the rounding.
  const at::Tensor log_distance = at::log(distance.clamp_min(1).to(at::kFloat) / max_exact);
  const at::Tensor wide = (max_exact + (log_distance / octaves * (half - max_exact)).to(at::kLong)).clamp_max(half - 1);
  return at::where(distance < max_exact, distance, wide) + (ahead > 0).to(at::kLong) * half;
}

void T5Layer::weights(const Visit& visit, const std::string& name, const T5Config& config, at::ScalarType dtype) {
  const int64_t inner = config.num_heads * config.d_kv, model = config.d_model;
  const std::string attention = name + ".layer.0.", feed_forward = name + ".layer.1.";
  const Visit matrices = in_fp8(visit);
  visit(attention_norm, parameter(attention + "layer_norm.weight", {model}));
  if (config.bias_per_layer) list_relative_bias(relative_bias, visit, name, config);
  q.weights(matrices, attention + "SelfAttention.q", inner, model, false);
  k.weights(matrices, attention + "SelfAttention.k", inner, model, false);
  v.weights(matrices, attention + "SelfAttention.v", inner, model, false);
  attention_out.weights(matrices, attention + "SelfAttention.o", model, inner, false);
  visit(feed_forward_norm, parameter(feed_forward + "layer_norm.weight", {model}));
  wi_0.weights(matrices, feed_forward + "DenseReluDense.wi_0", config.d_ff, model, false);
  wi_1.weights(matrices, feed_forward + "DenseReluDense.wi_1", config.d_ff, model, false);
  wo.weights(dtype == at::kHalf ? in_fp32(matrices) : matrices, feed_forward + "DenseReluDense.wo", model, config.d_ff,
             false);
}

T5Encoder T5Encoder::load(const Component& component, at::Device device, WeightFormat format, Residence residence) {
  const auto reader = std::make_shared<WeightReader>(component, device, format);
  T5Encoder encoder;
  encoder.config = parse_t5_config(component.config, component.config_file);
  const std::string embedding = embedding_name(*reader);
  list_ends(encoder, reader->loads(), embedding);
  encoder.bytes = bytes_of(slots_of([&](const Visit& visit) { list_ends(encoder, visit, embedding); }), *reader);
  std::vector<Slots> layers = list_layers(encoder, format.dtype);
  encoder.streamed = encoder.bytes;
  const uint64_t ends = encoder.bytes;
  for (const Slots& layer : layers) {
    const uint64_t layer_bytes = bytes_of(layer, *reader);
    encoder.bytes += layer_bytes;
    encoder.streamed = std::max(encoder.streamed, ends + layer_bytes);
    encoder.again = encoder.again || models::rounds_again(layer, *reader);
  }
  encoder.layer_weights = load_layers(reader, std::move(layers), residence);
  if (residence != Residence::file) reader->check_complete();
  return encoder;
}

at::Tensor T5Encoder::forward(const at::Tensor& ids) const {
  check_ids(ids, config);
  const at::Device device = shared.device();
  // On the CPU, because a GPU takes 60 ms to load six kernels that nothing else needs.
  const at::Tensor buckets = relative_position_buckets(ids.size(1), config.relative_attention_num_buckets,
                                                       config.relative_attention_max_distance)
                                 .to(device);
  const auto scores_bias = [&](const at::Tensor& of_buckets) {
    return rows_of(of_buckets, buckets).permute({2, 0, 1}).unsqueeze(0).contiguous();
  };
  const at::Tensor shared_bias = config.bias_per_layer ? at::Tensor() : scores_bias(relative_bias);
  at::Tensor x = rows_of(shared, ids.to(device));
  for (size_t i = 0; i < layers.size(); ++i) {
    StoppableWork::throw_if_stopped();
    layer_weights->visit(i);
    const T5Layer& layer = layers[i];
    const at::Tensor bias = config.bias_per_layer ? scores_bias(layer.relative_bias) : shared_bias;
    const at::Tensor attention_in = rms_norm(x, layer.attention_norm, config.layer_norm_epsilon);
    x = clamp_infinities(x + self_attention(layer, attention_in, bias, config.d_kv));
    x = clamp_infinities(x + feed_forward(layer, rms_norm(x, layer.feed_forward_norm, config.layer_norm_epsilon)));
  }
  return rms_norm(x, final_norm, config.layer_norm_epsilon);
}

std::unique_ptr<TextEncoder> load_t5_encoder(const Component& component, at::Device device, WeightFormat format,
                                             Residence residence) {
  return std::make_unique<T5Encoder>(T5Encoder::load(component, device, format, residence));
}

}  // namespace sparsereel::models
