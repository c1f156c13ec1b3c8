// Forward pass of Qwen3's language model. dtypes follow transformers' Qwen3VLTextModel.
#include "models/text/encoder/qwen3_encoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "hilbert/error.h"
#include "models/layers/norm.h"
#include "models/layers/table_rows.h"
#include "models/store/weights/stoppable_work.h"
#include "models/store/weights/tensor_source.h"
#include "models/text/encoder/half_rotation.h"
#include "models/text/encoder/picture_positions.h"
#include "models/text/encoder/qwen3_names.h"

namespace sparsereel::models {
namespace {

const std::string kEmbeddingName = std::string(kQwen3Model) + "embed_tokens";

/// Computes the causal self-attention of a layer. x is [B, L, hidden_size].
at::Tensor causal_attention(const Qwen3Layer& layer, const at::Tensor& x, const Qwen3Config& config,
                            const HalfRotation& rotation) {
  const auto heads = [&](const Linear& projection) {
    return linear(x, projection).unflatten(-1, {-1, config.head_dim});  // [B, L, heads, head_dim]
  };
  const at::Tensor q = rotated_halves(rms_norm(heads(layer.q), layer.q_norm, config.rms_norm_eps), rotation);
  const at::Tensor k = rotated_halves(rms_norm(heads(layer.k), layer.k_norm, config.rms_norm_eps), rotation);
  const at::Tensor attended = at::scaled_dot_product_attention(
      q.transpose(1, 2), k.transpose(1, 2), heads(layer.v).transpose(1, 2), /*attn_mask=*/{}, /*dropout_p=*/0.0,
      /*is_causal=*/true, /*scale=*/std::nullopt, /*enable_gqa=*/true);
  return linear(attended.transpose(1, 2).flatten(2), layer.attention_out);
}

/// Ignores what the encoder does not use: later layers, the final norm, the head, and the vision model.
void ignore_others(WeightReader& reader, int64_t used, int64_t all) {
  const std::string model = kQwen3Model;
  for (int64_t i = used; i < all; ++i) reader.ignore_prefix(model + "layers." + std::to_string(i) + ".");
  reader.ignore_prefix(model + "norm.");
  for (const char* other : {"lm_head.", "output.", "model.visual.", "visual."}) reader.ignore_prefix(other);
}

/// Loads the embedding in the dtype of its file, so that the mapped file is used without a copy.
void load_embedding(Qwen3Encoder& encoder, const Component& component, at::ScalarType run) {
  const at::Device device = component.random_seed || encoder.device.is_meta() ? encoder.device : at::Device(at::kCPU);
  const auto stored = open_source(component, device, run)->find(kEmbeddingName + ".weight", {});
  const auto number = stored ? scalar_type(stored->dtype) : std::nullopt;
  const bool is_plain = number == at::kFloat || number == at::kHalf || number == at::kBFloat16;
  WeightReader reader(component, device, is_plain ? *number : run);
  encoder.embedding.weights(reader.loads(), kEmbeddingName, encoder.config.vocab_size, encoder.config.hidden_size,
                            false);
}

Slots list_embedding(Qwen3Encoder& encoder) {
  return slots_of([&](const Visit& visit) {
    encoder.embedding.weights(visit, kEmbeddingName, encoder.config.vocab_size, encoder.config.hidden_size, false);
  });
}

std::vector<Slots> list_decoder_layers(Qwen3Encoder& encoder) {
  std::vector<Slots> slots;
  for (Qwen3Layer& layer : encoder.layers) {
    const std::string name = kQwen3Model + ("layers." + std::to_string(slots.size()));
    slots.push_back(slots_of([&](const Visit& visit) { layer.weights(visit, name, encoder.config); }));
  }
  return slots;
}

void check_token_ids(const at::Tensor& ids, const Qwen3Config& config) {
  const auto largest = ids.max().item<int64_t>();
  if (largest < config.vocab_size) return;
  throw bad_input("the tokenizer gave id " + std::to_string(largest) + ", but the text encoder's vocab_size is " +
                      std::to_string(config.vocab_size),
                  "take tokenizer and text_encoder from the same checkpoint");
}

void check_places(const at::Tensor& ids, const std::vector<TextPicture>& pictures, const Qwen3Config& config) {
  int64_t end = 0;  // end of the previous picture, in tokens
  for (const TextPicture& picture : pictures) {
    const int64_t tokens = picture.rows * picture.columns;
    if (ids.size(0) != 1 || picture.first < end || picture.first > ids.size(1) - tokens)
      throw bad_input("a picture of " + std::to_string(tokens) + " tokens at token " + std::to_string(picture.first) +
                          " does not fit a text of " + std::to_string(ids.size(1)) + " tokens",
                      "give one text, and its pictures in their order");
    if (picture.tokens.size(-1) != config.hidden_size)
      throw bad_input("a picture's tokens have " + std::to_string(picture.tokens.size(-1)) +
                          " channels, but the text encoder's hidden_size is " + std::to_string(config.hidden_size),
                      "take both models from the same checkpoint");
    end = picture.first + tokens;
  }
}

}  // namespace

void Qwen3Layer::weights(const Visit& visit, const std::string& name, const Qwen3Config& config) {
  const int64_t model = config.hidden_size, dim = config.head_dim, inner = config.intermediate_size;
  const int64_t queries = config.num_attention_heads * dim, keys = config.num_key_value_heads * dim;
  const std::string attention = name + ".self_attn.", mlp = name + ".mlp.";
  const Visit matrices = in_fp8(visit);
  visit(attention_norm, parameter(name + ".input_layernorm.weight", {model}));
  q.weights(matrices, attention + "q_proj", queries, model, false);
  k.weights(matrices, attention + "k_proj", keys, model, false);
  v.weights(matrices, attention + "v_proj", keys, model, false);
  visit(q_norm, parameter(attention + "q_norm.weight", {dim}));
  visit(k_norm, parameter(attention + "k_norm.weight", {dim}));
  attention_out.weights(matrices, attention + "o_proj", model, queries, false);
  visit(feed_forward_norm, parameter(name + ".post_attention_layernorm.weight", {model}));
  feed_forward_in.packed_weights(matrices, {mlp + "up_proj", mlp + "gate_proj"}, inner, model, false);
  feed_forward_out.weights(matrices, mlp + "down_proj", model, inner, false);
}

Qwen3Encoder Qwen3Encoder::load(const Component& component, at::Device device, WeightFormat format, Residence residence,
                                int64_t layers) {
  Qwen3Encoder encoder;
  encoder.config = parse_qwen3_config(component.config, component.config_file);
  if (layers > encoder.config.num_hidden_layers)
    throw bad_file(component.config_file,
                   "num_hidden_layers is " + std::to_string(encoder.config.num_hidden_layers) +
                       ", but the model uses the states after " + std::to_string(layers) + " layers",
                   "take the text encoder that was published with the model");
  encoder.device = device;
  encoder.dtype = format.dtype;
  const auto reader = std::make_shared<WeightReader>(component, device, format);
  ignore_others(*reader, layers, encoder.config.num_hidden_layers);
  const Slot table = list_embedding(encoder).front();
  reader->expect(table.parameter);
  load_embedding(encoder, component, format.dtype);
  encoder.bytes = reader->bytes(table.parameter);
  encoder.streamed = component.random_seed ? encoder.bytes : 0;
  const uint64_t ends = encoder.streamed;
  encoder.layers.resize(static_cast<size_t>(layers));
  std::vector<Slots> slots = list_decoder_layers(encoder);
  for (const Slots& layer : slots) {
    const uint64_t layer_bytes = bytes_of(layer, *reader);
    encoder.bytes += layer_bytes;
    encoder.streamed = std::max(encoder.streamed, ends + layer_bytes);
    encoder.again = encoder.again || models::rounds_again(layer, *reader);
  }
  encoder.layer_weights = load_layers(reader, std::move(slots), residence);
  if (residence != Residence::file) reader->check_complete();
  return encoder;
}

at::Tensor Qwen3Encoder::forward_with(const at::Tensor& ids, const std::vector<TextPicture>& pictures) const {
  check_token_ids(ids, config);
  check_places(ids, pictures, config);
  const int64_t batch = ids.size(0), length = ids.size(1);
  const at::Tensor places = ids.flatten().to(embedding.weight.device());
  at::Tensor x = table_rows(embedding, places, dtype).to(device).view({batch, length, config.hidden_size});
  const auto rows_of = [&](const TextPicture& picture) {
    return x[0].narrow(0, picture.first, picture.rows * picture.columns);
  };
  for (const TextPicture& picture : pictures) rows_of(picture).copy_(picture.tokens);
  const at::Tensor angles =
      interleaved_angles(picture_positions(length, pictures), rotary_frequencies(config.head_dim, config.rope_theta),
                         config.mrope_section);
  const HalfRotation rotation = half_rotation(angles, x.options());
  for (size_t i = 0; i < layers.size(); ++i) {
    StoppableWork::throw_if_stopped();
    layer_weights->visit(i);
    const Qwen3Layer& layer = layers[i];
    const at::Tensor attention_in = rms_norm(x, layer.attention_norm, config.rms_norm_eps);
    x = x + causal_attention(layer, attention_in, config, rotation);
    const at::Tensor feed_forward = rms_norm(x, layer.feed_forward_norm, config.rms_norm_eps);
    x = x + feed_forward_swiglu(feed_forward, layer.feed_forward_in, layer.feed_forward_out);
    for (const TextPicture& picture : pictures)
      if (i < picture.of_layers.size()) rows_of(picture).add_(picture.of_layers[i].to(x.options()));
  }
  return x;
}

}  // namespace sparsereel::models
