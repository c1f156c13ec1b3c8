// The forward pass of CLIP's vision transformer. Dtypes follow transformers' CLIPVisionModel.
#include "models/image/clip_encoder.h"

#include <ATen/ATen.h>

#include <sstream>

#include "hilbert/error.h"
#include "models/image/clip_names.h"
#include "models/store/weights/layer_weights.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {
namespace {

/// Cuts pixels [B, 3, S, S] into patches [B, patches, 3 x side^2]. The elements of a patch have the order (channel,
/// row, column), like those of a convolution's kernel.
at::Tensor patches_of(const at::Tensor& pixels, int64_t side) {
  const int64_t count = pixels.size(3) / side;
  return pixels.reshape({pixels.size(0), pixels.size(1), count, side, count, side})
      .permute({0, 2, 4, 1, 3, 5})
      .flatten(3)
      .flatten(1, 2);
}

/// Computes a layer's self-attention for x [B, N, C]. Returns [B, N, C].
at::Tensor attend_to_all(const ClipLayer& layer, const at::Tensor& x, int64_t heads) {
  const at::Tensor qkv = linear(x, layer.qkv).unflatten(-1, {3, heads, -1}).permute({2, 0, 3, 1, 4});
  const at::Tensor attended = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
  return linear(attended.transpose(1, 2).flatten(2), layer.out);
}

/// Returns the prefix of the tensors' names. Some versions of transformers save these models with a prefix, others
/// without.
std::string prefix_of(const Component& component) {
  const std::string prefix = "vision_model.";
  const auto found = component.tensors.lower_bound(prefix);
  return found != component.tensors.end() && found->first.starts_with(prefix) ? prefix : "";
}

void ignore_unused(WeightReader& reader, const std::string& prefix, const ClipVisionConfig& config) {
  reader.ignore_prefix(prefix + "encoder.layers." + std::to_string(config.num_hidden_layers - 1) + ".");
  reader.ignore_prefix(prefix + "embeddings.position_ids");
  for (const char* behind : {"post_layernorm.", "head"}) reader.ignore_prefix(prefix + behind);
  for (const char* of_clip : {"visual_projection.", "text_model.", "text_projection.", "logit_scale"})
    reader.ignore_prefix(of_clip);
}

/// The way in which a checkpoint names the tensors of CLIP's vision transformer.
struct Spelling {
  std::string prefix;
  bool fused;  // true: q, k and v are one matrix
};

Spelling spelling_of(const Component& component, const WeightReader& reader) {
  const std::string prefix = prefix_of(component);
  const std::string first = clip_fused_layer(prefix + "encoder.layers.0.self_attn.");
  return {.prefix = prefix, .fused = reader.contains(first + ".weight")};
}

void list_weights(ClipEncoder& encoder, const Visit& visit, const Spelling& spelling) {
  const auto& [prefix, fused] = spelling;
  const ClipVisionConfig& config = encoder.config;
  const int64_t channels = config.hidden_size, side = config.patch_size;
  const std::string embeddings = prefix + "embeddings.";
  encoder.patch.weights(visit, embeddings + "patch_embedding", channels, config.num_channels * side * side,
                        /*has_bias=*/false, {channels, config.num_channels, side, side});
  const Visit loose = in_any_shape(visit);  // some files have a batch axis
  loose(encoder.class_embedding, parameter(embeddings + "class_embedding", {channels}));
  loose(encoder.position_embedding, parameter(embeddings + "position_embedding.weight", {config.tokens(), channels}));
  encoder.pre_norm.weights(visit, prefix + "pre_layrnorm", channels);  // transformers' spelling
  for (size_t i = 0; i < encoder.layers.size(); ++i)
    encoder.layers[i].weights(visit, prefix + "encoder.layers." + std::to_string(i), config, fused);
}

void check_pixels(const at::Tensor& pixels, const ClipVisionConfig& config) {
  const int64_t size = config.image_size;
  if (pixels.dim() == 4 && pixels.sizes().slice(1) == at::IntArrayRef({config.num_channels, size, size})) return;
  std::ostringstream cause;
  cause << "pixels of shape " << pixels.sizes() << " do not fit an image encoder of " << size << " x " << size;
  throw bad_input(cause.str(), "take image_encoder and image_processor from the same checkpoint");
}

}  // namespace

void ClipLayer::weights(const Visit& visit, const std::string& name, const ClipVisionConfig& config, bool fused) {
  const int64_t channels = config.hidden_size;
  const std::string attention = name + ".self_attn.";
  norm1.weights(visit, name + ".layer_norm1", channels);
  if (fused)
    qkv.weights(visit, clip_fused_layer(attention), 3 * channels, channels);
  else
    qkv.packed_weights(visit, {attention + "q_proj", attention + "k_proj", attention + "v_proj"}, channels, channels);
  out.weights(visit, attention + "out_proj", channels, channels);
  norm2.weights(visit, name + ".layer_norm2", channels);
  fc1.weights(visit, name + ".mlp.fc1", config.intermediate_size, channels);
  fc2.weights(visit, name + ".mlp.fc2", channels, config.intermediate_size);
}

ClipEncoder ClipEncoder::load(const Component& component, at::Device device, at::ScalarType dtype) {
  WeightReader reader(component, device, dtype);
  ClipEncoder encoder;
  encoder.config = parse_clip_vision_config(component.config, component.config_file);
  encoder.layers.resize(static_cast<size_t>(encoder.config.num_hidden_layers - 1));
  const Spelling spelling = spelling_of(component, reader);
  ignore_unused(reader, spelling.prefix, encoder.config);
  list_weights(encoder, reader.loads(), spelling);
  encoder.bytes = bytes_of(slots_of([&](const Visit& visit) { list_weights(encoder, visit, spelling); }), reader);
  reader.check_complete();
  return encoder;
}

at::Tensor ClipEncoder::forward(const at::Tensor& pixels) const {
  check_pixels(pixels, config);
  const double eps = config.layer_norm_eps;
  at::Tensor x = linear(patches_of(pixels.to(position_embedding.options()), config.patch_size), patch);
  x = at::cat({class_embedding.expand({x.size(0), 1, -1}), x}, 1) + position_embedding;
  x = layer_norm(x, pre_norm, eps);
  for (const ClipLayer& layer : layers) {
    StoppableWork::throw_if_stopped();
    x = x + attend_to_all(layer, layer_norm(x, layer.norm1, eps), config.num_attention_heads);
    x = x + linear(linear_gelu(layer_norm(x, layer.norm2, eps), layer.fc1), layer.fc2);
  }
  return x;
}

std::unique_ptr<ImageEncoder> load_clip_encoder(const Component& component, at::Device device, at::ScalarType dtype) {
  return std::make_unique<ClipEncoder>(ClipEncoder::load(component, device, dtype));
}

}  // namespace sparsereel::models
