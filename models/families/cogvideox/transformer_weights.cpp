// Names and shapes of CogVideoX's weights (diffusers' CogVideoXTransformer3DModel).
#include "models/families/cogvideox/transformer_weights.h"

namespace sparsereel::models {
namespace {

void list_norm(Norm& norm, const Visit& visit, const std::string& name, const CogVideoXConfig& config) {
  if (config.norm_elementwise_affine) norm.weights(visit, name, config.width());
}

void list_adaptive_norm(AdaptiveNorm& norm, const Visit& visit, const std::string& name,
                        const CogVideoXConfig& config) {
  norm.modulation.weights(visit, name + ".linear", 6 * config.width(), config.time_embed_dim);
  list_norm(norm.norm, visit, name + ".norm", config);
}

int64_t sample_tokens(const CogVideoXConfig& config) {
  return (config.sample_height / config.patch_size) * (config.sample_width / config.patch_size) *
         ((config.sample_frames - 1) / config.temporal_compression_ratio + 1);
}

}  // namespace

void CogVideoXBlock::weights(const Visit& visit, const std::string& name, const CogVideoXConfig& config) {
  const int64_t channels = config.width(), head_dim = config.attention_head_dim;
  const std::string attention = name + ".attn1.";
  list_adaptive_norm(norm1, visit, name + ".norm1", config);
  qkv.packed_weights(in_fp8(visit), {attention + "to_q", attention + "to_k", attention + "to_v"}, channels, channels,
                     config.attention_bias);
  norm_q.weights(visit, attention + "norm_q", head_dim, /*fp32=*/true);
  norm_k.weights(visit, attention + "norm_k", head_dim, /*fp32=*/true);
  to_out.weights(in_fp8(visit), attention + "to_out.0", channels, channels);
  list_adaptive_norm(norm2, visit, name + ".norm2", config);
  feed_forward_in.weights(in_fp8(visit), name + ".ff.net.0.proj", 4 * channels, channels);
  feed_forward_out.weights(in_fp8(visit), name + ".ff.net.2", channels, 4 * channels);
}

void CogVideoXEnds::weights(const Visit& visit, const CogVideoXConfig& config) {
  const int64_t channels = config.width(), time = config.time_embed_dim, side = config.patch_size;
  const int64_t pixels = side * side * config.patch_size_t.value_or(1);
  // CogVideoX 1.5 embeds patches with a matrix. 1.0 uses a convolution whose stride equals its kernel size, which is
  // the same as a matrix.
  if (config.patch_size_t)
    patch.weights(visit, "patch_embed.proj", channels, config.in_channels * pixels);
  else
    patch.weights(visit, "patch_embed.proj", channels, config.in_channels * pixels, config.patch_bias,
                  {channels, config.in_channels, side, side});
  text.weights(visit, "patch_embed.text_proj", channels, config.text_embed_dim);
  if (config.use_learned_positional_embeddings) {
    visit(learned_positions,
          parameter("patch_embed.pos_embedding", {1, config.max_text_seq_length + sample_tokens(config), channels}));
  }
  time_embedding.weights(visit, "time_embedding", time, channels);
  if (config.ofs_embed_dim) ofs_embedding.weights(visit, "ofs_embedding", time, time);
  list_norm(norm_final, visit, "norm_final", config);
  norm_out_modulation.weights(visit, "norm_out.linear", 2 * channels, time);
  list_norm(norm_out, visit, "norm_out.norm", config);
  out.weights(visit, "proj_out", config.out_channels * pixels, channels);
}

}  // namespace sparsereel::models
