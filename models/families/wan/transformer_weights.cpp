// Names and shapes of Wan's weights (diffusers' WanTransformer3DModel).
#include "models/families/wan/transformer_weights.h"

namespace sparsereel::models {

void WanBlock::weights(const Visit& visit, const std::string& name, const WanConfig& config) {
  const int64_t channels = config.width();
  const std::string self = name + ".attn1.", cross = name + ".attn2.";
  const auto rms_norm = [&](at::Tensor& weight, const std::string& norm) {
    visit(weight, parameter(norm + ".weight", {channels}, /*fp32=*/true));
  };
  in_any_shape(visit)(modulation, parameter(name + ".scale_shift_table", {1, 6, channels}, /*fp32=*/true));
  qkv.packed_weights(in_fp8(visit), {self + "to_q", self + "to_k", self + "to_v"}, channels, channels);
  rms_norm(norm_q, self + "norm_q");
  rms_norm(norm_k, self + "norm_k");
  to_out.weights(in_fp8(visit), self + "to_out.0", channels, channels);
  if (config.cross_attn_norm) cross_norm.weights(visit, name + ".norm2", channels, /*fp32=*/true);
  cross_q.weights(in_fp8(visit), cross + "to_q", channels, channels);
  cross_kv.packed_weights(in_fp8(visit), {cross + "to_k", cross + "to_v"}, channels, channels);
  rms_norm(cross_norm_q, cross + "norm_q");
  rms_norm(cross_norm_k, cross + "norm_k");
  cross_out.weights(in_fp8(visit), cross + "to_out.0", channels, channels);
  if (config.attends_to_images()) {
    image_kv.packed_weights(in_fp8(visit), {cross + "add_k_proj", cross + "add_v_proj"}, channels, channels);
    rms_norm(image_norm_k, cross + "norm_added_k");
  }
  feed_forward_in.weights(in_fp8(visit), name + ".ffn.net.0.proj", config.ffn_dim, channels);
  feed_forward_out.weights(in_fp8(visit), name + ".ffn.net.2", channels, config.ffn_dim);
}

void WanImageEmbedding::weights(const Visit& visit, const WanConfig& config) {
  const std::string name = "condition_embedder.image_embedder.";
  const int64_t tokens = config.image_dim.value();
  if (config.pos_embed_seq_len) visit(positions, parameter(name + "pos_embed", {1, *config.pos_embed_seq_len, tokens}));
  norm_in.weights(visit, name + "norm1", tokens, /*fp32=*/true);
  in.weights(visit, name + "ff.net.0.proj", tokens, tokens);
  out.weights(visit, name + "ff.net.2", config.width(), tokens);
  norm_out.weights(visit, name + "norm2", config.width(), /*fp32=*/true);
}

void WanEnds::weights(const Visit& visit, const WanConfig& config) {
  const int64_t channels = config.width();
  const auto& [t, h, w] = config.patch_size;
  const std::string condition = "condition_embedder.";
  patch.weights(in_any_shape(visit), "patch_embedding", channels, config.in_channels * t * h * w, /*has_bias=*/true,
                {channels, config.in_channels, t, h, w});
  time_embedding.weights(in_fp32(visit), condition + "time_embedder", channels, config.freq_dim);
  time_projection.weights(visit, condition + "time_proj", 6 * channels, channels);
  text_in.weights(visit, condition + "text_embedder.linear_1", channels, config.text_dim);
  text_out.weights(visit, condition + "text_embedder.linear_2", channels, channels);
  if (config.attends_to_images()) image.weights(visit, config);
  in_any_shape(visit)(modulation, parameter("scale_shift_table", {1, 2, channels}, /*fp32=*/true));
  out.weights(visit, "proj_out", config.out_channels * t * h * w, channels);
}

}  // namespace sparsereel::models
