// CogVideoX's 3D causal decoder, a batch of frames at a time.
#include "models/families/cogvideox/decoder.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <utility>

#include "models/vae/between_convolutions.h"
#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

ResnetBlock read_resnet(WeightReader& reader, const std::string& name, int64_t in, int64_t out,
                        const CogVideoXVaeConfig& config) {
  const int64_t latent = config.latent_channels, groups = config.norm_num_groups;
  ResnetBlock block{.norm1 = read_spatial_norm(reader, name + ".norm1", in, latent, groups),
                    .conv1 = read_causal_conv3d(reader, name + ".conv1", in, out),
                    .norm2 = read_spatial_norm(reader, name + ".norm2", out, latent, groups),
                    .conv2 = read_causal_conv3d(reader, name + ".conv2", out, out),
                    .shortcut = {}};
  if (in != out) {
    Linear shortcut;
    shortcut.weights(reader.loads(), name + ".conv_shortcut", out, in, true, {out, in, 1, 1, 1});
    block.shortcut = shortcut.in(reader.dtype()).weight.t();
    block.conv2.bias = block.conv2.bias + shortcut.bias;
  }
  return block;
}

UpBlock read_up_block(WeightReader& reader, const std::string& name, int64_t in, int64_t out,
                      const CogVideoXVaeConfig& config) {
  UpBlock block;
  for (int64_t i = 0; i <= config.layers_per_block; ++i) {
    block.resnets.push_back(
        read_resnet(reader, name + ".resnets." + std::to_string(i), i == 0 ? in : out, out, config));
  }
  return block;
}

// conv(silu(norm(x + bias))); x is let go as soon as it is normalised, which frees it unless the caller holds it.
at::Tensor convolve_normed(const SpatialNorm& norm, const CausalConv3d& conv, at::Tensor x, const at::Tensor& bias,
                           const at::Tensor& z, ConvHistory& history, bool with_bias = true) {
  const at::Tensor buffer = causal_buffer(x.size(0), x.size(1), x.size(2), x.size(3), x.options());
  spatial_norm_silu(norm, x, z, new_frames(buffer), bias);
  x.reset();
  return causal_conv3d(conv, buffer, history, with_bias);
}

at::Tensor resnet(const ResnetBlock& block, const at::Tensor& x, const at::Tensor& z, ConvHistory& history) {
  const bool carried = carries_biases(x), last_carried = carried && !block.shortcut.defined();
  const at::Tensor first_bias = carried ? block.conv1.bias : at::Tensor();
  at::Tensor hidden = convolve_normed(block.norm1, block.conv1, x, {}, z, history, !carried);
  hidden = convolve_normed(block.norm2, block.conv2, std::move(hidden), first_bias, z, history, !last_carried);
  if (!block.shortcut.defined()) {
    add_residual(hidden, x, last_carried ? block.conv2.bias : at::Tensor());
  } else {
    hidden.view({-1, hidden.size(3)}).addmm_(x.view({-1, x.size(3)}), block.shortcut);
  }
  return hidden;
}

// Every frame of x + bias twice, but the first one of an odd number, which stands for itself.
at::Tensor repeat_frames(const at::Tensor& x, const at::Tensor& bias) {
#ifdef SPARSEREEL_CUDA
  if (has_vae_kernels(x)) return repeat_on_cuda(x, bias, 1, true);
#endif
  if (bias.defined()) return repeat_frames(x + bias, {});
  if (x.size(0) == 1) return x;
  if (x.size(0) % 2 == 0) return x.repeat_interleave(2, 0);
  return at::cat({x.narrow(0, 0, 1), x.narrow(0, 1, x.size(0) - 1).repeat_interleave(2, 0)});
}

// Frames are repeated after the convolution, since equal frames convolve to equal frames.
at::Tensor upsample(const Upsampler& upsampler, const at::Tensor& x) {
  const bool carried = carries_biases(x) && upsampler.compress_time;
  const at::Tensor larger = upsample_pixels(x, upsampler.weight, carried ? at::Tensor() : upsampler.bias);
  if (!upsampler.compress_time) return larger;
  return repeat_frames(larger, carried ? upsampler.bias : at::Tensor());
}

}  // namespace

CogVideoXDecoder read_cogvideox_decoder(WeightReader& reader, const CogVideoXVaeConfig& config) {
  const std::vector<int64_t> channels(config.block_out_channels.rbegin(), config.block_out_channels.rend());
  const auto doublings = static_cast<size_t>(std::log2(config.temporal_compression_ratio));
  CogVideoXDecoder decoder;
  if (config.use_post_quant_conv) {
    const int64_t width = config.out_channels;
    decoder.post_quant_conv.emplace().weights(reader.loads(), "post_quant_conv", width, width, true,
                                              {width, width, 1, 1, 1});
  }
  decoder.conv_in = read_causal_conv3d(reader, "decoder.conv_in", config.latent_channels, channels.front());
  for (int i = 0; i < 2; ++i) {
    const std::string name = "decoder.mid_block.resnets." + std::to_string(i);
    decoder.mid.push_back(read_resnet(reader, name, channels.front(), channels.front(), config));
  }
  for (size_t i = 0; i < channels.size(); ++i) {
    const std::string name = "decoder.up_blocks." + std::to_string(i);
    decoder.up.push_back(read_up_block(reader, name, channels[i == 0 ? 0 : i - 1], channels[i], config));
    if (i + 1 == channels.size()) break;
    const std::string conv = name + ".upsamplers.0.conv";
    const at::Tensor weight = reader.tensor(conv + ".weight", {channels[i], channels[i], 3, 3});
    decoder.up.back().upsampler = Upsampler{.weight = laid_out(weight, at::MemoryFormat::ChannelsLast),
                                            .bias = reader.tensor(conv + ".bias", {channels[i]}),
                                            .compress_time = i < doublings};
  }
  decoder.norm_out =
      read_spatial_norm(reader, "decoder.norm_out", channels.back(), config.latent_channels, config.norm_num_groups);
  decoder.conv_out =
      with_padded_outputs(read_causal_conv3d(reader, "decoder.conv_out", channels.back(), config.out_channels));
  decoder.out_channels = config.out_channels;
  return decoder;
}

at::Tensor decode_frames(const CogVideoXDecoder& decoder, const at::Tensor& latents, ConvHistory& history) {
  at::Tensor z = latents;
  if (decoder.post_quant_conv) z = linear(z, *decoder.post_quant_conv);
  const at::Tensor buffer = causal_buffer(z.size(0), z.size(1), z.size(2), z.size(3), z.options());
  new_frames(buffer).copy_(z);
  at::Tensor x = causal_conv3d(decoder.conv_in, buffer, history);
  for (const ResnetBlock& block : decoder.mid) x = resnet(block, x, z, history);
  for (const UpBlock& block : decoder.up) {
    for (const ResnetBlock& layer : block.resnets) x = resnet(layer, x, z, history);
    if (block.upsampler) x = upsample(*block.upsampler, x);
  }
  x = convolve_normed(decoder.norm_out, decoder.conv_out, std::move(x), {}, z, history);
  return x.narrow(3, 0, decoder.out_channels);
}

}  // namespace sparsereel::models
