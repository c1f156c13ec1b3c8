// Open-Sora-Plan's 3D causal decoder.
#include "models/families/open_sora_plan/decoder.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <utility>

#include "models/vae/between_convolutions.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kColours = 3;

auto video_norms_of(WeightReader& reader) {
  return [&reader](const std::string& name, int64_t channels) {
    GroupNorm norm = {.groups = OpenSoraPlanVaeConfig::kNormGroups, .eps = OpenSoraPlanVaeConfig::kNormEps};
    norm.norm.weights(reader.loads(), name, channels);
    return norm;
  };
}

ResnetBlock<GroupNorm> read_block(WeightReader& reader, const std::string& name, int64_t in, int64_t out) {
  return read_resnet<GroupNorm>(reader, name, in, out, video_norms_of(reader), "nin_shortcut.conv");
}

Linear read_pixelwise(WeightReader& reader, const std::string& name, int64_t out, int64_t in) {
  return {.weight = reader.tensor(name + ".conv.weight", {out, in, 1, 1, 1}).view({out, in}),
          .bias = reader.tensor(name + ".conv.bias", {out})};
}

/// Queries, keys and values below each other.
Linear read_qkv(WeightReader& reader, const std::string& name, int64_t channels) {
  std::vector<at::Tensor> weights, biases;
  for (const char* part : {".q", ".k", ".v"}) {
    const Linear layer = read_pixelwise(reader, name + part, channels, channels);
    weights.push_back(layer.weight);
    biases.push_back(layer.bias);
  }
  return {.weight = at::cat(weights), .bias = at::cat(biases)};
}

OpenSoraPlanTimeUpsampler read_time_upsampler(WeightReader& reader, const std::string& name, int64_t channels,
                                              OpenSoraPlanVaeConfig::TimeUpsampling kind) {
  OpenSoraPlanTimeUpsampler upsampler;
  if (kind != OpenSoraPlanVaeConfig::TimeUpsampling::mixed) return upsampler;
  upsampler.conv = read_causal_conv3d(reader, name + ".conv", channels, channels);
  const at::Tensor factor = reader.tensor(name + ".mix_factor", {1});
  if (!factor.is_meta()) upsampler.share = at::sigmoid(factor).to(at::kDouble).item<double>();
  return upsampler;
}

OpenSoraPlanLevel read_level(WeightReader& reader, const OpenSoraPlanVaeConfig& config, size_t index, int64_t in) {
  const std::string name = "decoder.up." + std::to_string(index);
  const int64_t out = config.hidden_size * config.hidden_size_mult[index];
  OpenSoraPlanLevel level;
  for (int64_t i = 0; i <= config.num_res_blocks; ++i)
    level.resnets.push_back(read_block(reader, name + ".block." + std::to_string(i), i == 0 ? in : out, out));
  if (config.spatial_upsampling[index]) {
    const std::string conv = name + ".upsample.conv.conv";
    const at::Tensor weight = reader.tensor(conv + ".weight", {out, out, 1, 3, 3}).squeeze(2);
    level.upsampler_weight = laid_out(weight, at::MemoryFormat::ChannelsLast);
    level.upsampler_bias = reader.tensor(conv + ".bias", {out});
  }
  if (config.time_upsampling[index] != OpenSoraPlanVaeConfig::TimeUpsampling::none)
    level.time_upsampler = read_time_upsampler(reader, name + ".time_upsample", out, config.time_upsampling[index]);
  return level;
}

/// Every frame of x [F, H, W, C] but the first becomes two, a quarter of the way to the frames beside it.
at::Tensor twice_as_many_frames(const at::Tensor& x) {
  const int64_t rest = x.size(0) - 1;
  if (rest == 0) return x;
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = 1 + 2 * rest;
  at::Tensor frames = at::empty(shape, x.options());
  const auto put = [&](int64_t to, const at::Tensor& frame) { frames[to].copy_(frame); };
  put(0, x[0]);
  for (int64_t i = 1; i <= rest; ++i) {
    put(2 * i - 1, i == 1 ? x[1] : at::lerp(x[i], x[i - 1], 0.25));
    put(2 * i, i == rest ? x[i] : at::lerp(x[i], x[i + 1], 0.25));
  }
  return frames;
}

at::Tensor upsample_time(const OpenSoraPlanTimeUpsampler& upsampler, const at::Tensor& x, ConvHistory& history) {
  at::Tensor frames = twice_as_many_frames(x);
  if (!upsampler.conv) return frames;
  const at::Tensor convolved = convolve_copied(*upsampler.conv, frames, history);
  return at::lerp(convolved, frames, upsampler.share);
}

/// A frame at a time: its scores are [pixels, pixels].
at::Tensor attend_within_frames(const OpenSoraPlanAttention& attention, const at::Tensor& x) {
  const ChannelAffine affine = group_affine(attention.norm, x);
  at::Tensor result = at::empty_like(x);
  for (int64_t i = 0; i < x.size(0); ++i) {
    const at::Tensor normed = at::addcmul(affine.shift, x[i].to(at::kFloat), affine.scale).to(x.scalar_type());
    const std::vector<at::Tensor> qkv = linear(normed.view({1, -1, x.size(3)}), attention.qkv).chunk(3, 2);
    const at::Tensor seen = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
    result[i].copy_(x[i] + linear(seen, attention.out).view_as(x[i]));
  }
  return result;
}

}  // namespace

OpenSoraPlanDecoder read_open_sora_plan_decoder(WeightReader& reader, const OpenSoraPlanVaeConfig& config) {
  const int64_t widest = config.hidden_size * config.hidden_size_mult.back();
  const std::string attention = "decoder.mid.attn_1";
  OpenSoraPlanDecoder decoder;
  if (config.use_quant_layer)
    decoder.post_quant_conv = read_pixelwise(reader, "post_quant_conv", config.z_channels, config.embed_dim);
  decoder.conv_in = read_causal_conv3d(reader, "decoder.conv_in", config.z_channels, widest);
  decoder.mid_first = read_block(reader, "decoder.mid.block_1", widest, widest);
  decoder.attention = {.norm = video_norms_of(reader)(attention + ".norm", widest),
                       .qkv = read_qkv(reader, attention, widest),
                       .out = read_pixelwise(reader, attention + ".proj_out", widest, widest)};
  decoder.mid_last = read_block(reader, "decoder.mid.block_2", widest, widest);
  int64_t channels = widest;
  for (size_t i = config.hidden_size_mult.size(); i-- > 0;) {
    decoder.levels.push_back(read_level(reader, config, i, channels));
    channels = config.hidden_size * config.hidden_size_mult[i];
  }
  decoder.norm_out = video_norms_of(reader)("decoder.norm_out", channels);
  decoder.conv_out = with_padded_outputs(read_causal_conv3d(reader, "decoder.conv_out", channels, kColours));
  return decoder;
}

at::Tensor decode_frames(const OpenSoraPlanDecoder& decoder, const at::Tensor& latents) {
  const auto norm_silu = [](const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out, const at::Tensor& bias) {
    video_norm_silu(norm, x, out, bias);
  };
  ConvHistory history = {.ends = true};
  const at::Tensor z = decoder.post_quant_conv ? linear(latents, *decoder.post_quant_conv) : latents;
  at::Tensor x = resnet(decoder.mid_first, convolve_copied(decoder.conv_in, z, history), norm_silu, history);
  x = resnet(decoder.mid_last, attend_within_frames(decoder.attention, x), norm_silu, history);
  for (const OpenSoraPlanLevel& level : decoder.levels) {
    for (const auto& block : level.resnets) x = resnet(block, x, norm_silu, history);
    if (level.upsampler_weight.defined()) x = upsample_pixels(x, level.upsampler_weight, level.upsampler_bias);
    if (level.time_upsampler) x = upsample_time(*level.time_upsampler, x, history);
  }
  x = convolve_normed(decoder.norm_out, decoder.conv_out, std::move(x), {}, norm_silu, history);
  return x.narrow(3, 0, kColours);
}

}  // namespace sparsereel::models
