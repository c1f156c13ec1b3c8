// Names and shapes of Mochi's weights (diffusers' MochiTransformer3DModel).
#include "models/families/mochi/transformer_weights.h"

namespace sparsereel::models {
namespace {

/// The names of a stream's layers, and its width.
struct StreamNames {
  std::string q, k, v, norm_q, norm_k, to_out, feed_forward;
  int64_t width;
};

void list_attention(MochiStream& stream, const Visit& visit, const std::string& attention, const StreamNames& names,
                    const MochiConfig& config) {
  stream.qkv.packed_weights(in_fp8(visit), {attention + names.q, attention + names.k, attention + names.v},
                            config.width(), names.width, /*has_bias=*/false);
  visit(stream.norm_q, parameter(attention + names.norm_q + ".weight", {config.attention_head_dim}, /*fp32=*/true));
  visit(stream.norm_k, parameter(attention + names.norm_k + ".weight", {config.attention_head_dim}, /*fp32=*/true));
}

void list_updates(MochiStream& stream, const Visit& visit, const std::string& block, const StreamNames& names,
                  const MochiConfig& config) {
  const int64_t inner = MochiConfig::feed_forward_width(names.width);
  const std::string feed_forward = block + names.feed_forward + ".net.";
  stream.to_out.weights(in_fp8(visit), block + "attn1." + names.to_out, names.width, config.width());
  stream.feed_forward_in.weights(in_fp8(visit), feed_forward + "0.proj", 2 * inner, names.width, /*has_bias=*/false);
  stream.feed_forward_out.weights(in_fp8(visit), feed_forward + "2", names.width, inner, /*has_bias=*/false);
}

}  // namespace

void MochiBlock::weights(const Visit& visit, const std::string& name, const MochiConfig& config) {
  const int64_t channels = config.width(), text_width = config.pooled_projection_dim;
  const std::string block = name + ".", attention = block + "attn1.";
  const StreamNames of_video = {"to_q", "to_k", "to_v", "norm_q", "norm_k", "to_out.0", "ff", channels};
  const StreamNames of_text = {"add_q_proj",   "add_k_proj", "add_v_proj", "norm_added_q",
                               "norm_added_k", "to_add_out", "ff_context", text_width};
  video.modulation.weights(visit, block + "norm1.linear", 4 * channels, channels);
  list_attention(video, visit, attention, of_video, config);
  list_updates(video, visit, block, of_video, config);
  if (ends_text)
    text.modulation.weights(visit, block + "norm1_context.linear_1", text_width, channels);
  else
    text.modulation.weights(visit, block + "norm1_context.linear", 4 * text_width, channels);
  list_attention(text, visit, attention, of_text, config);
  if (!ends_text) list_updates(text, visit, block, of_text, config);
}

void MochiEnds::weights(const Visit& visit, const MochiConfig& config) {
  const int64_t channels = config.width(), side = config.patch_size, text_dim = config.text_embed_dim;
  const std::string embed = "time_embed.", pool = embed + "pooler.";
  patch.weights(visit, "patch_embed.proj", channels, config.in_channels * side * side, /*has_bias=*/true,
                {channels, config.in_channels, side, side});
  time_embedding.weights(visit, embed + "timestep_embedder", channels, config.time_embed_dim);
  pooler.to_q.weights(visit, pool + "to_q", text_dim, text_dim);
  pooler.to_kv.weights(visit, pool + "to_kv", 2 * text_dim, text_dim);
  pooler.to_out.weights(visit, pool + "to_out", channels, text_dim);
  text.weights(visit, embed + "caption_proj", config.pooled_projection_dim, text_dim);
  visit(pos_frequencies, parameter("pos_frequencies", {3, config.num_attention_heads, config.attention_head_dim / 2}));
  norm_out_modulation.weights(visit, "norm_out.linear", 2 * channels, channels);
  out.weights(visit, "proj_out", config.out_channels * side * side, channels);
}

}  // namespace sparsereel::models
