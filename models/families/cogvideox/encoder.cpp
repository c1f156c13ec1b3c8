// CogVideoX's 3D causal encoder. It encodes one batch of frames at a time.
#include "models/families/cogvideox/encoder.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

namespace sparsereel::models {
namespace {

constexpr double kEpsOfNormOut = 1e-6;  // regardless of the config's norm_eps

// Averages each pair of frames of x [F, H, W, C]. If F is odd, the first frame stays as it is.
at::Tensor halve_frames(const at::Tensor& x) {
  const int64_t apart = x.size(0) % 2;
  if (x.size(0) == 1) return x;
  const at::Tensor pairs = x.narrow(0, apart, x.size(0) - apart).unflatten(0, {-1, 2});
  const at::Tensor means = at::lerp(pairs.select(1, 0), pairs.select(1, 1), 0.5);
  return apart == 0 ? means : at::cat({x.narrow(0, 0, 1), means});
}

// Frames are halved before the convolution, which then has half the work.
at::Tensor downsample(const Downsampler& downsampler, at::Tensor x) {
  if (downsampler.compress_time) x = halve_frames(x);
  return downsample_pixels(x, downsampler.weight, downsampler.bias);
}

}  // namespace

void CogVideoXEncoder::weights(const Visit& visit, const CogVideoXVaeConfig& config) {
  const std::vector<int64_t>& channels = config.block_out_channels;
  const int64_t moments = 2 * config.latent_channels, widest = channels.back();
  const auto list_norm = list_group_norms(visit, config.norm_num_groups, config.norm_eps);
  conv_in.weights(visit, "encoder.conv_in.conv", channels.front(), config.in_channels);
  down.resize(channels.size());
  for (size_t i = 0; i < channels.size(); ++i) {
    const std::string name = "encoder.down_blocks." + std::to_string(i);
    list_resnets(down[i].resnets, visit, name + ".resnets", config.layers_per_block, channels[i == 0 ? 0 : i - 1],
                 channels[i], list_norm);
    if (i + 1 == channels.size()) break;
    Downsampler& downsampler = down[i].downsampler.emplace();
    downsampler.compress_time = i < config.time_halvings();
    visit(downsampler.weight, parameter(name + ".downsamplers.0.conv.weight", {channels[i], channels[i], 3, 3}));
    visit(downsampler.bias, parameter(name + ".downsamplers.0.conv.bias", {channels[i]}));
  }
  list_resnets(mid, visit, "encoder.mid_block.resnets", 2, widest, widest, list_norm);
  list_group_norms(visit, config.norm_num_groups, kEpsOfNormOut)(norm_out, "encoder.norm_out", widest);
  conv_out.weights(visit, "encoder.conv_out.conv", moments, widest);
  if (config.use_quant_conv)
    quant_conv.emplace().weights(visit, "quant_conv", moments, moments, true, {moments, moments, 1, 1, 1});
}

void CogVideoXEncoder::finish() {
  for (DownBlock& level : down) {
    for (auto& block : level.resnets) block.finish();
  }
  for (auto& block : mid) block.finish();
}

at::Tensor encode_frames(const CogVideoXEncoder& encoder, const at::Tensor& frames, ConvHistory& history) {
  at::Tensor x = convolve_copied(encoder.conv_in, frames, history);
  for (const DownBlock& block : encoder.down) {
    for (const auto& layer : block.resnets) x = resnet(layer, x, video_norm_silu, history);
    if (block.downsampler) x = downsample(*block.downsampler, std::move(x));
  }
  for (const auto& block : encoder.mid) x = resnet(block, x, video_norm_silu, history);
  x = convolve_normed(encoder.norm_out, encoder.conv_out, std::move(x), {}, video_norm_silu, history);
  return encoder.quant_conv ? linear(x, *encoder.quant_conv) : x;
}

}  // namespace sparsereel::models
