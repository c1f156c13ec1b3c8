// CogVideoX's 3D causal decoder, a batch of frames at a time.
#include "models/families/cogvideox/decoder.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

// How each of the decoder's norms is read.
auto spatial_norms_of(WeightReader& reader, const CogVideoXVaeConfig& config) {
  return [&reader, &config](const std::string& name, int64_t channels) {
    return read_spatial_norm(reader, name, channels, config.latent_channels, config.norm_num_groups);
  };
}

UpBlock read_up_block(WeightReader& reader, const std::string& name, int64_t in, int64_t out,
                      const CogVideoXVaeConfig& config) {
  UpBlock block;
  for (int64_t i = 0; i <= config.layers_per_block; ++i) {
    block.resnets.push_back(read_resnet<SpatialNorm>(reader, name + ".resnets." + std::to_string(i), i == 0 ? in : out,
                                                     out, spatial_norms_of(reader, config)));
  }
  return block;
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
at::Tensor upsample(const Upsampler& upsampler, const at::Tensor& x, const RowSplit* rows) {
  const bool carried = carries_biases(x) && upsampler.compress_time;
  const at::Tensor larger = upsample_pixels(x, upsampler.weight, carried ? at::Tensor() : upsampler.bias, rows);
  if (!upsampler.compress_time) return larger;
  return repeat_frames(larger, carried ? upsampler.bias : at::Tensor());
}

}  // namespace

CogVideoXDecoder read_cogvideox_decoder(WeightReader& reader, const CogVideoXVaeConfig& config) {
  const std::vector<int64_t> channels(config.block_out_channels.rbegin(), config.block_out_channels.rend());
  CogVideoXDecoder decoder;
  if (config.use_post_quant_conv) {
    const int64_t width = config.out_channels;
    decoder.post_quant_conv.emplace().weights(reader.loads(), "post_quant_conv", width, width, true,
                                              {width, width, 1, 1, 1});
  }
  decoder.conv_in = read_causal_conv3d(reader, "decoder.conv_in", config.latent_channels, channels.front());
  for (int i = 0; i < 2; ++i) {
    const std::string name = "decoder.mid_block.resnets." + std::to_string(i);
    decoder.mid.push_back(
        read_resnet<SpatialNorm>(reader, name, channels.front(), channels.front(), spatial_norms_of(reader, config)));
  }
  for (size_t i = 0; i < channels.size(); ++i) {
    const std::string name = "decoder.up_blocks." + std::to_string(i);
    decoder.up.push_back(read_up_block(reader, name, channels[i == 0 ? 0 : i - 1], channels[i], config));
    if (i + 1 == channels.size()) break;
    const std::string conv = name + ".upsamplers.0.conv";
    const at::Tensor weight = reader.tensor(conv + ".weight", {channels[i], channels[i], 3, 3});
    decoder.up.back().upsampler = Upsampler{.weight = laid_out(weight, at::MemoryFormat::ChannelsLast),
                                            .bias = reader.tensor(conv + ".bias", {channels[i]}),
                                            .compress_time = i < config.time_halvings()};
  }
  decoder.norm_out = spatial_norms_of(reader, config)("decoder.norm_out", channels.back());
  decoder.conv_out =
      with_padded_outputs(read_causal_conv3d(reader, "decoder.conv_out", channels.back(), config.out_channels));
  decoder.out_channels = config.out_channels;
  return decoder;
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
