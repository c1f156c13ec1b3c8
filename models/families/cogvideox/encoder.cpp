// CogVideoX's 3D causal encoder, a batch of frames at a time.
#include "models/families/cogvideox/encoder.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

namespace sparsereel::models {
namespace {

constexpr double kEpsOfNormOut = 1e-6;  // whatever the config's norm_eps

// How each of the encoder's norms is read.
auto group_norms_of(WeightReader& reader, const CogVideoXVaeConfig& config, double eps) {
  return [&reader, &config, eps](const std::string& name, int64_t channels) {
    GroupNorm norm{.norm = {}, .groups = config.norm_num_groups, .eps = eps};
    norm.norm.weights(reader.loads(), name, channels);
    return norm;
  };
}

DownBlock read_down_block(WeightReader& reader, const std::string& name, int64_t in, int64_t out,
                          const CogVideoXVaeConfig& config) {
  DownBlock block;
  for (int64_t i = 0; i < config.layers_per_block; ++i) {
    block.resnets.push_back(read_resnet<GroupNorm>(reader, name + ".resnets." + std::to_string(i), i == 0 ? in : out,
                                                   out, group_norms_of(reader, config, config.norm_eps)));
  }
  return block;
}

// Of each two frames their mean; the first one of an odd number stands for itself.
at::Tensor halve_frames(const at::Tensor& x) {
  const int64_t apart = x.size(0) % 2;
  if (x.size(0) == 1) return x;
  const at::Tensor pairs = x.narrow(0, apart, x.size(0) - apart).unflatten(0, {-1, 2});
  const at::Tensor means = at::lerp(pairs.select(1, 0), pairs.select(1, 1), 0.5);
  return apart == 0 ? means : at::cat({x.narrow(0, 0, 1), means});
}

// Frames are halved before the convolution: it then has half the work.
at::Tensor downsample(const Downsampler& downsampler, at::Tensor x) {
  if (downsampler.compress_time) x = halve_frames(x);
  return downsample_pixels(x, downsampler.weight, downsampler.bias);
}

}  // namespace

CogVideoXEncoder read_cogvideox_encoder(WeightReader& reader, const CogVideoXVaeConfig& config) {
  const std::vector<int64_t>& channels = config.block_out_channels;
  const int64_t moments = 2 * config.latent_channels;
  CogVideoXEncoder encoder;
  encoder.conv_in = read_causal_conv3d(reader, "encoder.conv_in", config.in_channels, channels.front());
  for (size_t i = 0; i < channels.size(); ++i) {
    const std::string name = "encoder.down_blocks." + std::to_string(i);
    encoder.down.push_back(read_down_block(reader, name, channels[i == 0 ? 0 : i - 1], channels[i], config));
    if (i + 1 == channels.size()) break;
    const std::string conv = name + ".downsamplers.0.conv";
    const at::Tensor weight = reader.tensor(conv + ".weight", {channels[i], channels[i], 3, 3});
    encoder.down.back().downsampler = Downsampler{.weight = laid_out(weight, at::MemoryFormat::ChannelsLast),
                                                  .bias = reader.tensor(conv + ".bias", {channels[i]}),
                                                  .compress_time = i < config.time_halvings()};
  }
  for (int i = 0; i < 2; ++i) {
    const std::string name = "encoder.mid_block.resnets." + std::to_string(i);
    encoder.mid.push_back(read_resnet<GroupNorm>(reader, name, channels.back(), channels.back(),
                                                 group_norms_of(reader, config, config.norm_eps)));
  }
  encoder.norm_out = group_norms_of(reader, config, kEpsOfNormOut)("encoder.norm_out", channels.back());
  encoder.conv_out = read_causal_conv3d(reader, "encoder.conv_out", channels.back(), moments);
  if (config.use_quant_conv)
    encoder.quant_conv.emplace().weights(reader.loads(), "quant_conv", moments, moments, true,
                                         {moments, moments, 1, 1, 1});
  return encoder;
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
