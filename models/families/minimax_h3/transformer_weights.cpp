// Names and shapes of the weights of MiniMax-H3's transformer (diffusers' MiniMaxH3Transformer3DModel).
#include "models/families/minimax_h3/transformer_weights.h"

#include "models/families/minimax_h3/rotary_order.h"

namespace sparsereel::models {

void MiniMaxH3Layer::weights(const Visit& visit, const std::string& name, const MiniMaxH3Config& config, bool rotates) {
  const int64_t channels = config.hidden_size, width = config.heads_width();
  const std::string attention = name + ".attn.";
  const RotatedHeads heads = {
      .count = config.num_attention_heads, .dim = config.attention_head_dim, .rotated = 6 * config.rope_freq_dim};
  const Visit of_qkv = rotates ? in_row_order(visit, heads.row_order()) : visit;
  const Visit of_norms = rotates ? in_row_order(visit, heads.channel_order()) : visit;
  norm_attention.weights(visit, name + ".norm1", channels, /*fp32=*/true);
  qkv.packed_weights(in_fp8(of_qkv), {attention + "to_q", attention + "to_k", attention + "to_v"}, width, channels,
                     /*has_bias=*/false);
  of_norms(norm_q, parameter(attention + "norm_q.weight", {config.attention_head_dim}, /*fp32=*/true));
  of_norms(norm_k, parameter(attention + "norm_k.weight", {config.attention_head_dim}, /*fp32=*/true));
  to_out.weights(in_fp8(visit), attention + "to_out.0", channels, width, /*has_bias=*/false);
  norm_feed_forward.weights(visit, name + ".norm2", channels, /*fp32=*/true);
  feed_forward_in.weights(in_fp8(visit), name + ".ff.net.0.proj", 2 * config.ffn_dim, channels, /*has_bias=*/false);
  feed_forward_out.weights(in_fp8(visit), name + ".ff.net.2", channels, config.ffn_dim, /*has_bias=*/false);
}

void MiniMaxH3Block::modulation_weights(const Visit& visit, const std::string& name, const MiniMaxH3Config& config) {
  modulation_projection.weights(visit, name + ".adaln_proj.linear", 18 * config.hidden_size, config.time_embed_dim);
}

void MiniMaxH3Ends::weights(const Visit& visit, const MiniMaxH3Config& config) {
  const int64_t channels = config.hidden_size;
  const Visit wide = in_fp32(visit);
  patch.weights(wide, "proj_in", channels, config.patch_elements());
  sound.weights(wide, "audio_proj_in", channels, config.audio_in_channels);
  text.weights(visit, "context_embedder", channels, config.text_dim);
  time_embedding.linear_1.weights(wide, "time_embedder.linear_1", config.time_embed_hidden_dim, config.freq_dim);
  time_embedding.linear_2.weights(wide, "time_embedder.linear_2", config.time_embed_dim, config.time_embed_hidden_dim);
  refiner.resize(static_cast<size_t>(config.num_refiner_layers));
  for (size_t i = 0; i < refiner.size(); ++i)
    refiner[i].weights(visit, "token_refiner.refiner_blocks." + std::to_string(i), config, /*rotates=*/false);
  refiner_norm.weights(visit, "token_refiner.final_norm", channels, /*fp32=*/true);
  norm_out.weights(visit, "norm_out.norm", channels, /*fp32=*/true);
  norm_out_modulation.weights(visit, "norm_out.linear", 2 * channels, config.time_embed_dim);
  out.weights(wide, "proj_out", config.patch_elements(), channels);
  sound_out.weights(wide, "audio_proj_out", config.audio_in_channels, channels);
}

}  // namespace sparsereel::models
