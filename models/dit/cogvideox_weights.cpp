// Names and shapes of CogVideoX's weights (diffusers' CogVideoXTransformer3DModel).
#include "models/dit/cogvideox_weights.h"

#include <ATen/ATen.h>

#include <string>

namespace sparsereel::models {
namespace {

struct Sizes {
  int64_t channels, head_dim, time;
  bool affine_norms;
};

Affine norm(WeightReader& reader, const std::string& name, const Sizes& sizes) {
  return sizes.affine_norms ? reader.affine(name, {sizes.channels}) : Affine{};
}

Affine fp32_norm(WeightReader& reader, const std::string& name, int64_t size) {
  return {reader.tensor_fp32(name + ".weight", {size}), reader.tensor_fp32(name + ".bias", {size})};
}

AdaptiveNorm adaptive_norm(WeightReader& reader, const std::string& name, const Sizes& sizes) {
  return {reader.affine(name + ".linear", {6 * sizes.channels, sizes.time}), norm(reader, name + ".norm", sizes)};
}

// One projection instead of three: q, k and v are then views of its result.
Affine packed_qkv(WeightReader& reader, const std::string& attention, const Sizes& sizes, bool bias) {
  const std::vector<int64_t> shape = {sizes.channels, sizes.channels};
  const Affine q = reader.affine(attention + ".to_q", shape, bias);
  const Affine k = reader.affine(attention + ".to_k", shape, bias);
  const Affine v = reader.affine(attention + ".to_v", shape, bias);
  if (is_stand_in(q.weight) || is_stand_in(k.weight) || is_stand_in(v.weight)) {
    // Of the packed shape, since who takes blocks as they come expects them to be alike.
    const at::Tensor one = at::zeros({}, q.weight.options());
    return {one.expand({3 * sizes.channels, sizes.channels}), bias ? one.expand({3 * sizes.channels}) : at::Tensor()};
  }
  return {at::cat({q.weight, k.weight, v.weight}), bias ? at::cat({q.bias, k.bias, v.bias}) : at::Tensor()};
}

CogVideoXBlock block(WeightReader& reader, const std::string& name, const Sizes& sizes, bool attention_bias) {
  const int64_t channels = sizes.channels;
  return {.norm1 = adaptive_norm(reader, name + ".norm1", sizes),
          .qkv = packed_qkv(reader, name + ".attn1", sizes, attention_bias),
          .norm_q = fp32_norm(reader, name + ".attn1.norm_q", sizes.head_dim),
          .norm_k = fp32_norm(reader, name + ".attn1.norm_k", sizes.head_dim),
          .to_out = reader.affine(name + ".attn1.to_out.0", {channels, channels}),
          .norm2 = adaptive_norm(reader, name + ".norm2", sizes),
          .feed_forward_in = reader.affine(name + ".ff.net.0.proj", {4 * channels, channels}),
          .feed_forward_out = reader.affine(name + ".ff.net.2", {channels, 4 * channels})};
}

// 1.0 patches with a convolution whose stride is its kernel (a matrix in disguise), 1.5 with a matrix.
Affine patch(WeightReader& reader, const CogVideoXConfig& config, int64_t channels) {
  const int64_t side = config.patch_size;
  if (config.patch_size_t) {
    return reader.affine("patch_embed.proj", {channels, config.in_channels * side * side * *config.patch_size_t});
  }
  Affine layer = reader.affine("patch_embed.proj", {channels, config.in_channels, side, side}, config.patch_bias);
  layer.weight = layer.weight.flatten(1);
  return layer;
}

int64_t sample_tokens(const CogVideoXConfig& config) {
  return (config.sample_height / config.patch_size) * (config.sample_width / config.patch_size) *
         ((config.sample_frames - 1) / config.temporal_compression_ratio + 1);
}

}  // namespace

std::vector<at::Tensor*> tensors_of(CogVideoXBlock& block) {
  std::vector<at::Tensor*> tensors;
  for (Affine* affine :
       {&block.norm1.modulation, &block.norm1.norm, &block.qkv, &block.norm_q, &block.norm_k, &block.to_out,
        &block.norm2.modulation, &block.norm2.norm, &block.feed_forward_in, &block.feed_forward_out})
    tensors.insert(tensors.end(), {&affine->weight, &affine->bias});
  static_assert(sizeof(CogVideoXBlock) == 10 * sizeof(Affine), "list every member above");
  return tensors;
}

CogVideoXWeights load_cogvideox_weights(WeightReader& reader, const CogVideoXConfig& config,
                                        const std::function<void(CogVideoXBlock&)>& block_read) {
  const Sizes sizes = {.channels = config.num_attention_heads * config.attention_head_dim,
                       .head_dim = config.attention_head_dim,
                       .time = config.time_embed_dim,
                       .affine_norms = config.norm_elementwise_affine};
  const int64_t channels = sizes.channels;
  CogVideoXWeights weights;
  weights.patch = patch(reader, config, channels);
  weights.text = reader.affine("patch_embed.text_proj", {channels, config.text_embed_dim});
  if (config.use_learned_positional_embeddings) {
    weights.learned_positions =
        reader.tensor("patch_embed.pos_embedding", {1, config.max_text_seq_length + sample_tokens(config), channels});
  }
  weights.time_embedding = {reader.affine("time_embedding.linear_1", {sizes.time, channels}),
                            reader.affine("time_embedding.linear_2", {sizes.time, sizes.time})};
  for (int64_t i = 0; i < config.num_layers; ++i) {
    weights.blocks.push_back(block(reader, "transformer_blocks." + std::to_string(i), sizes, config.attention_bias));
    if (block_read) block_read(weights.blocks.back());
  }
  weights.norm_final = norm(reader, "norm_final", sizes);
  weights.norm_out_modulation = reader.affine("norm_out.linear", {2 * channels, sizes.time});
  weights.norm_out = norm(reader, "norm_out.norm", sizes);
  const int64_t side = config.patch_size;
  weights.out =
      reader.affine("proj_out", {config.out_channels * side * side * config.patch_size_t.value_or(1), channels});
  reader.check_complete();
  return weights;
}

}  // namespace sparsereel::models
