// Names and shapes of Open-Sora-Plan's weights (OpenSoraT2V).
#include "models/families/open_sora_plan/transformer_weights.h"

#include <ATen/ATen.h>

namespace sparsereel::models {

at::Tensor rotary_order(const OpenSoraPlanConfig& config) {
  const int64_t channels = config.width(), axis = config.attention_head_dim / 3;
  const at::Tensor rows = at::arange(3 * channels, at::kLong);
  const at::Tensor pairs = rows.narrow(0, 0, 2 * channels).view({-1, 2, axis / 2}).transpose(1, 2).reshape({-1});
  return at::cat({pairs, rows.narrow(0, 2 * channels, channels)});
}

void OpenSoraPlanBlock::weights(const Visit& visit, const std::string& name, const OpenSoraPlanConfig& config) {
  const int64_t channels = config.width(), inner = 4 * channels;
  const std::string self = name + ".attn1.", cross = name + ".attn2.";
  const Visit in_pairs = in_row_order(visit, rotary_order(config));
  visit(modulation, parameter(name + ".scale_shift_table", {6, channels}, /*fp32=*/true));
  qkv.packed_weights(in_fp8(in_pairs), {self + "to_q", self + "to_k", self + "to_v"}, channels, channels);
  to_out.weights(in_fp8(visit), self + "to_out.0", channels, channels);
  cross_q.weights(in_fp8(visit), cross + "to_q", channels, channels);
  cross_kv.packed_weights(in_fp8(visit), {cross + "to_k", cross + "to_v"}, channels, channels);
  cross_out.weights(in_fp8(visit), cross + "to_out.0", channels, channels);
  feed_forward_in.weights(in_fp8(visit), name + ".ff.net.0.proj", inner, channels);
  feed_forward_out.weights(in_fp8(visit), name + ".ff.net.2", channels, inner);
}

void OpenSoraPlanEnds::weights(const Visit& visit, const OpenSoraPlanConfig& config) {
  const int64_t channels = config.width(), side = config.patch_size;
  const std::string time = "adaln_single.", text = "caption_projection.";
  patch.weights(visit, "pos_embed.proj", channels, config.in_channels * side * side, /*has_bias=*/true,
                {channels, config.in_channels, side, side});
  time_embedding.weights(visit, time + "emb.timestep_embedder", channels, OpenSoraPlanConfig::kTimeChannels);
  time_projection.weights(visit, time + "linear", 6 * channels, channels);
  text_in.weights(visit, text + "linear_1", channels, config.caption_channels);
  text_out.weights(visit, text + "linear_2", channels, channels);
  visit(modulation, parameter("scale_shift_table", {2, channels}, /*fp32=*/true));
  out.weights(visit, "proj_out", config.out_channels * side * side, channels);
}

}  // namespace sparsereel::models
