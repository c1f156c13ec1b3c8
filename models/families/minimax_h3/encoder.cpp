// The layers of MiniMax-H3's VAE encoder. Activations are [B, channels, height, width].
#include "models/families/minimax_h3/encoder.h"

#include <ATen/ATen.h>

#include "models/layers/linear.h"
#include "models/vae/causal_conv3d.h"

namespace sparsereel::models {
namespace {

/// Convolves, with a border of one pixel that mirrors the picture.
at::Tensor reflected_convolution(const PictureConvolution& conv, const at::Tensor& x) {
  return convolve(at::reflection_pad2d(x, {1, 1, 1, 1}), conv.weight, conv.bias, {0, 0});
}

/// Halves the picture's height and width. Only its right and lower edges get a border.
at::Tensor halved(const PictureConvolution& conv, const at::Tensor& x) {
  return convolve(at::reflection_pad2d(x, {0, 1, 0, 1}), conv.weight, conv.bias, {0, 0}, {2, 2});
}

at::Tensor normed_silu(const GroupNorm& norm, const at::Tensor& x) {
  return at::silu(at::group_norm(x, norm.groups, norm.norm.weight, norm.norm.bias, norm.eps));
}

/// Applies a linear layer to the channels of each pixel.
at::Tensor each_pixel(const at::Tensor& x, const Linear& layer) {
  const at::Tensor pixels = x.permute({0, 2, 3, 1}).contiguous();
  return linear(pixels.flatten(1, 2), layer).unflatten(1, {x.size(2), x.size(3)}).permute({0, 3, 1, 2}).contiguous();
}

at::Tensor resnet_of(const MiniMaxH3EncoderResnet& block, const at::Tensor& x) {
  const at::Tensor hidden = reflected_convolution(block.conv1, normed_silu(block.norm1, x));
  const at::Tensor update = reflected_convolution(block.conv2, normed_silu(block.norm2, hidden));
  return update + (block.shortcut.weight.defined() ? each_pixel(x, block.shortcut) : x);
}

void list_group_norm(GroupNorm& norm, const Visit& visit, const std::string& name, int64_t channels,
                     const MiniMaxH3VaeConfig& config) {
  norm.groups = config.norm_num_groups;
  norm.eps = config.norm_eps;
  norm.norm.weights(visit, name, channels, /*fp32=*/true);
}

}  // namespace

void PictureConvolution::weights(const Visit& visit, const std::string& name, int64_t out, int64_t in) {
  visit(weight, parameter(name + ".weight", {out, in, 3, 3, 3}, /*fp32=*/true));
  visit(bias, parameter(name + ".bias", {out}, /*fp32=*/true));
}

void MiniMaxH3EncoderResnet::weights(const Visit& visit, const std::string& name, int64_t in, int64_t out,
                                     const MiniMaxH3VaeConfig& config) {
  list_group_norm(norm1, visit, name + ".norm1", in, config);
  conv1.weights(visit, name + ".conv1", out, in);
  list_group_norm(norm2, visit, name + ".norm2", out, config);
  conv2.weights(visit, name + ".conv2", out, out);
  if (in != out)
    shortcut.weights(in_fp32(visit), name + ".conv_shortcut", out, in, /*has_bias=*/true, {out, in, 1, 1, 1});
}

void MiniMaxH3Encoder::weights(const Visit& visit, const MiniMaxH3VaeConfig& config) {
  const std::vector<int64_t>& channels = config.block_out_channels;
  const int64_t moments = 2 * config.latent_channels;
  conv_in_.weights(visit, "encoder.conv_in", channels.front(), 3);
  levels_.resize(channels.size());
  for (size_t i = 0; i < levels_.size(); ++i) {
    const std::string name = "encoder.down_blocks." + std::to_string(i);
    std::vector<MiniMaxH3EncoderResnet>& resnets = levels_[i].resnets;
    resnets.resize(static_cast<size_t>(config.layers_per_block));
    for (size_t j = 0; j < resnets.size(); ++j)
      resnets[j].weights(visit, name + ".resnets." + std::to_string(j), j > 0 || i == 0 ? channels[i] : channels[i - 1],
                         channels[i], config);
    if (config.spatial_downsample_factors[i] > 1)
      levels_[i].downsampler.weights(visit, name + ".downsamplers.0.conv", channels[i], channels[i]);
  }
  list_group_norm(norm_out_, visit, "encoder.norm_out", channels.back(), config);
  conv_out_.weights(visit, "encoder.conv_out", moments, channels.back());
  moments_out_.weights(in_fp32(visit), "quant_conv", moments, moments, /*has_bias=*/true, {moments, moments, 1, 1, 1});
}

void MiniMaxH3Encoder::finish() {
  conv_in_.finish();
  conv_out_.finish();
  for (MiniMaxH3EncoderLevel& level : levels_) {
    for (MiniMaxH3EncoderResnet& resnet : level.resnets) {
      resnet.conv1.finish();
      resnet.conv2.finish();
    }
    if (level.downsampler.weight.defined()) level.downsampler.finish();
  }
}

at::Tensor MiniMaxH3Encoder::encode(const at::Tensor& pictures) const {
  at::Tensor x = reflected_convolution(conv_in_, pictures);
  for (const MiniMaxH3EncoderLevel& level : levels_) {
    for (const MiniMaxH3EncoderResnet& resnet : level.resnets) x = resnet_of(resnet, x);
    if (level.downsampler.weight.defined()) x = halved(level.downsampler, x);
  }
  return each_pixel(reflected_convolution(conv_out_, normed_silu(norm_out_, x)), moments_out_);
}

}  // namespace sparsereel::models
