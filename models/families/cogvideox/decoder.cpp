// CogVideoX's 3D causal decoder. It decodes one batch of frames at a time.
#include "models/families/cogvideox/decoder.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

// Doubles every frame of x + bias [F, H, W, C]. If F is odd, the first frame is not doubled.
at::Tensor repeat_frames(const at::Tensor& x, const at::Tensor& bias) {
#ifdef SPARSEREEL_CUDA
  if (has_vae_kernels(x)) return repeat_on_cuda(x, bias, 1, true);
#endif
  if (bias.defined()) return repeat_frames(x + bias, {});
  if (x.size(0) == 1) return x;
  if (x.size(0) % 2 == 0) return x.repeat_interleave(2, 0);
  return at::cat({x.narrow(0, 0, 1), x.narrow(0, 1, x.size(0) - 1).repeat_interleave(2, 0)});
}

// The reference repeats frames before the convolution. Repeating them afterwards gives the same result with half the
// work, because equal frames convolve to equal frames.
at::Tensor upsample(const Upsampler& upsampler, const at::Tensor& x, const RowSplit* rows) {
  const bool carried = carries_biases(x) && upsampler.compress_time;
  const at::Tensor larger = upsample_pixels(x, upsampler.weight, carried ? at::Tensor() : upsampler.bias, rows);
  if (!upsampler.compress_time) return larger;
  return repeat_frames(larger, carried ? upsampler.bias : at::Tensor());
}

}  // namespace

void CogVideoXDecoder::weights(const Visit& visit, const CogVideoXVaeConfig& config) {
  const std::vector<int64_t> channels(config.block_out_channels.rbegin(), config.block_out_channels.rend());
  const int64_t widest = channels.front(), width = config.out_channels;
  const auto list_norm = [&](SpatialNorm& norm, const std::string& name, int64_t norm_channels) {
    norm.groups = config.norm_num_groups;
    list_spatial_norm(norm, visit, name, norm_channels, config.latent_channels);
  };
  if (config.use_post_quant_conv)
    post_quant_conv.emplace().weights(visit, "post_quant_conv", width, width, true, {width, width, 1, 1, 1});
  conv_in.weights(visit, "decoder.conv_in.conv", widest, config.latent_channels);
  list_resnets(mid, visit, "decoder.mid_block.resnets", 2, widest, widest, list_norm);
  up.resize(channels.size());
  for (size_t i = 0; i < channels.size(); ++i) {
    const std::string name = "decoder.up_blocks." + std::to_string(i);
    list_resnets(up[i].resnets, visit, name + ".resnets", config.layers_per_block + 1, channels[i == 0 ? 0 : i - 1],
                 channels[i], list_norm);
    if (i + 1 == channels.size()) break;
    Upsampler& upsampler = up[i].upsampler.emplace();
    upsampler.compress_time = i < config.time_halvings();
    visit(upsampler.weight, parameter(name + ".upsamplers.0.conv.weight", {channels[i], channels[i], 3, 3}));
    visit(upsampler.bias, parameter(name + ".upsamplers.0.conv.bias", {channels[i]}));
  }
  list_norm(norm_out, "decoder.norm_out", channels.back());
  conv_out.weights(visit, "decoder.conv_out.conv", config.out_channels, channels.back());
  out_channels = config.out_channels;
}

void CogVideoXDecoder::finish() {
  for (auto& block : mid) block.finish();
  for (UpBlock& level : up) {
    for (auto& block : level.resnets) block.finish();
  }
  conv_out = with_padded_outputs(conv_out);
}

at::Tensor decode_frames(const CogVideoXDecoder& decoder, const at::Tensor& latents, ConvHistory& history) {
  at::Tensor z = latents;
  if (decoder.post_quant_conv) z = linear(z, *decoder.post_quant_conv);
  const auto norm_silu = [&](const SpatialNorm& norm, const at::Tensor& x, const at::Tensor& out,
                             const at::Tensor& bias,
                             const RowSplit* rows) { spatial_norm_silu(norm, x, z, out, bias, rows); };
  at::Tensor x = convolve_copied(decoder.conv_in, z, history);
  for (const auto& block : decoder.mid) x = resnet(block, x, norm_silu, history);
  for (const UpBlock& block : decoder.up) {
    for (const auto& layer : block.resnets) x = resnet(layer, x, norm_silu, history);
    if (block.upsampler) x = upsample(*block.upsampler, x, history.rows);
  }
  x = convolve_normed(decoder.norm_out, decoder.conv_out, std::move(x), {}, norm_silu, history);
  return x.narrow(3, 0, decoder.out_channels);
}

}  // namespace sparsereel::models
