// Forward pass of Qwen3-VL's vision model. dtypes follow transformers' Qwen3VLVisionModel.
#include "models/text/encoder/qwen3_vision.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "hilbert/error.h"
#include "models/files/config_fields.h"
#include "models/store/weights/layer_weights.h"
#include "models/store/weights/stoppable_work.h"
#include "models/text/encoder/half_rotation.h"

namespace sparsereel::models {
namespace {

constexpr double kNormEps = 1e-6, kRopeTheta = 10000;
const std::string kVision = "model.visual.";

/// Reorders x [rows, columns, ..] to [rows x columns, ..], so that the patches of each square of edge x edge follow
/// each other.
at::Tensor square_by_square(const at::Tensor& x, int64_t edge) {
  const int64_t rows = x.size(0), columns = x.size(1);
  return x.reshape({rows / edge, edge, columns / edge, edge, -1}).transpose(1, 2).reshape({rows * columns, -1});
}

/// Returns fp32 [patches, C]: the model's position embeddings, interpolated from their square grid to the picture's
/// grid. The corners of both grids coincide.
at::Tensor stretched_positions(const Qwen3Vision& model, const PicturePatches& picture) {
  const int64_t edge = model.config.positions_edge();
  const at::Tensor grid = model.positions.view({1, edge, edge, -1}).permute({0, 3, 1, 2});
  const at::Tensor stretched = at::upsample_bilinear2d(grid, {picture.rows, picture.columns}, /*align_corners=*/true);
  return square_by_square(stretched[0].permute({1, 2, 0}), model.config.spatial_merge_size);
}

/// Returns rotary tables of all patches: half of the frequencies for the row, half for the column.
HalfRotation patch_rotation(const Qwen3Vision& model, const PicturePatches& picture) {
  const int64_t dim = model.config.head_dim() / 2;
  const at::Tensor frequencies = rotary_frequencies(dim, kRopeTheta);
  const auto angles = [&](int64_t count) { return at::arange(count, at::kFloat).unsqueeze(1) * frequencies; };
  const std::vector<int64_t> shape = {picture.rows, picture.columns, dim / 2};
  const at::Tensor of_rows = angles(picture.rows).unsqueeze(1).expand(shape),
                   of_columns = angles(picture.columns).unsqueeze(0).expand(shape);
  const at::Tensor all = square_by_square(at::cat({of_rows, of_columns}, 2), model.config.spatial_merge_size);
  return half_rotation(all, at::TensorOptions().device(model.device).dtype(at::kFloat));
}

/// Computes the self-attention of all patches x [1, N, C].
at::Tensor attend_to_patches(const Qwen3VisionLayer& layer, const at::Tensor& x, const Qwen3VisionConfig& config,
                             const HalfRotation& rotation) {
  const at::Tensor qkv = linear(x, layer.qkv).unflatten(-1, {3, config.num_heads, -1});
  const auto turned = [&](int64_t kind) {
    return rotated_halves(qkv.select(2, kind).to(at::kFloat), rotation).to(x.scalar_type()).transpose(1, 2);
  };
  const at::Tensor attended = at::scaled_dot_product_attention(turned(0), turned(1), qkv.select(2, 2).transpose(1, 2));
  return linear(attended.transpose(1, 2).flatten(2), layer.out);
}

/// Returns [tokens, out_hidden_size] for x [1, N, C].
at::Tensor tokens_of_squares(const Qwen3Merger& merger, const at::Tensor& x, int64_t patches_a_token) {
  const auto joined = [&](const at::Tensor& all) { return all.reshape({1, all.size(1) / patches_a_token, -1}); };
  const at::Tensor normed =
      merger.joins_first ? layer_norm(joined(x), merger.norm, kNormEps) : joined(layer_norm(x, merger.norm, kNormEps));
  return linear(linear_gelu(normed, merger.fc1), merger.fc2)[0];
}

void check_patches(const Component& component, const Qwen3VisionConfig& config, const PatchConfig& patches) {
  const std::string& place = patches.file;
  check_fits(place, "patch_size", patches.patch_size, component.config_file + ": patch_size", config.patch_size);
  check_fits(place, "merge_size", patches.merge_size, component.config_file + ": spatial_merge_size",
             config.spatial_merge_size);
  check_fits(place, "temporal_patch_size", patches.temporal_patch_size, component.config_file + ": temporal_patch_size",
             config.temporal_patch_size);
}

/// Throws Error if the file lacks the vision model, as some published files do. Without this check, an error would list
/// all missing tensors.
void check_has_vision(const Component& component) {
  const auto begins = [](const auto& tensor) { return tensor.first.starts_with(kVision); };
  if (component.random_seed || std::ranges::any_of(component.tensors, begins)) return;
  throw bad_file(component.origin.string(),
                 "has no tensors " + kVision + "*, with which the text encoder looks at the images of a video",
                 "give a text encoder that has them, or leave the images out");
}

}  // namespace

void Qwen3VisionLayer::weights(const Visit& visit, const std::string& name, const Qwen3VisionConfig& config) {
  const int64_t channels = config.hidden_size, inner = config.intermediate_size;
  norm1.weights(visit, name + ".norm1", channels);
  qkv.weights(visit, name + ".attn.qkv", 3 * channels, channels);
  out.weights(visit, name + ".attn.proj", channels, channels);
  norm2.weights(visit, name + ".norm2", channels);
  fc1.weights(visit, name + ".mlp.linear_fc1", inner, channels);
  fc2.weights(visit, name + ".mlp.linear_fc2", channels, inner);
}

void Qwen3Merger::weights(const Visit& visit, const std::string& name, const Qwen3VisionConfig& config) {
  const int64_t joined = config.patches_a_token() * config.hidden_size;
  norm.weights(visit, name + ".norm", joins_first ? joined : config.hidden_size);
  fc1.weights(visit, name + ".linear_fc1", joined, joined);
  fc2.weights(visit, name + ".linear_fc2", config.out_hidden_size, joined);
}

void Qwen3Vision::weights(const Visit& visit) {
  const int64_t channels = config.hidden_size, edge = config.patch_size;
  patch.weights(visit, kVision + "patch_embed.proj", channels, config.patch_elements(), /*has_bias=*/true,
                {channels, 3, config.temporal_patch_size, edge, edge});
  visit(positions, parameter(kVision + "pos_embed.weight", {config.num_position_embeddings, channels}, /*fp32=*/true));
  for (size_t i = 0; i < layers.size(); ++i) layers[i].weights(visit, kVision + "blocks." + std::to_string(i), config);
  merger.weights(visit, kVision + "merger", config);
  for (size_t i = 0; i < layer_mergers.size(); ++i)
    layer_mergers[i].weights(visit, kVision + "deepstack_merger_list." + std::to_string(i), config);
}

Qwen3Vision Qwen3Vision::load(const Component& component, const PatchConfig& patches, at::Device device,
                              at::ScalarType dtype) {
  Qwen3Vision model;
  model.config = parse_qwen3_vision_config(component.config, component.config_file);
  model.patches = patches;
  check_patches(component, model.config, patches);
  check_has_vision(component);
  model.device = device;
  model.dtype = dtype;
  model.layers.resize(static_cast<size_t>(model.config.depth));
  model.layer_mergers.assign(model.config.deepstack_visual_indexes.size(),
                             Qwen3Merger{.norm = {}, .fc1 = {}, .fc2 = {}, .joins_first = true});
  WeightReader reader(component, device, dtype);
  for (const char* other : {"model.language_model.", "lm_head.", "output."}) reader.ignore_prefix(other);
  model.weights(reader.loads());
  model.bytes = bytes_of(slots_of([&](const Visit& visit) { model.weights(visit); }), reader);
  reader.check_complete();
  return model;
}

TextPicture Qwen3Vision::forward(const PicturePatches& picture) const {
  const int64_t merges = config.spatial_merge_size;
  const HalfRotation rotation = patch_rotation(*this, picture);
  at::Tensor x = linear(picture.pixels.to(device, dtype).unsqueeze(0), patch);
  x = x + stretched_positions(*this, picture).to(dtype).unsqueeze(0);
  TextPicture result = {.rows = picture.rows / merges, .columns = picture.columns / merges};
  for (size_t i = 0; i < layers.size(); ++i) {
    StoppableWork::throw_if_stopped();
    const Qwen3VisionLayer& layer = layers[i];
    x = x + attend_to_patches(layer, layer_norm(x, layer.norm1, kNormEps), config, rotation);
    x = x + linear(linear_gelu_tanh(layer_norm(x, layer.norm2, kNormEps), layer.fc1), layer.fc2);
    for (size_t j = 0; j < layer_mergers.size(); ++j)
      if (config.deepstack_visual_indexes[j] == static_cast<int64_t>(i))
        result.of_layers.push_back(tokens_of_squares(layer_mergers[j], x, config.patches_a_token()));
  }
  result.tokens = tokens_of_squares(merger, x, config.patches_a_token());
  return result;
}

// Counts the larger of a layer's two parts. Attention holds queries, keys and values, which are rotated in fp32; the
// feed-forward part holds its inner values before and after GELU. The part's input and its norm exist in both cases.
uint64_t Qwen3Vision::look_bytes(int64_t height, int64_t width) const {
  const int64_t count = picture_tokens(height, width, patches) * config.patches_a_token();
  const auto element = static_cast<int64_t>(c10::elementSize(dtype)), fp32 = static_cast<int64_t>(sizeof(float));
  const int64_t attention = config.hidden_size * (4 * element + 7 * fp32),
                feed_forward = 2 * (config.hidden_size + config.intermediate_size) * element;
  return static_cast<uint64_t>(count * std::max(attention, feed_forward));
}

std::unique_ptr<TextVision> load_qwen3_vision(const Component& component, at::Device device, at::ScalarType dtype,
                                              const PatchConfig& patches) {
  return std::make_unique<Qwen3Vision>(Qwen3Vision::load(component, patches, device, dtype));
}

}  // namespace sparsereel::models
