// Residual blocks, attention and resampling of Wan's VAE.
#include "models/families/wan/vae_layers.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "models/vae/between_convolutions.h"
#include "models/vae/frame_attention.h"
#include "models/vae/resnet.h"
#include "models/vae/rms_norm.h"

namespace sparsereel::models {
namespace {

at::Tensor attend(const WanVaeAttention& attention, const at::Tensor& x, const RowSplit* rows) {
  const at::Tensor qkv = linear(rms_norm(x, attention.norm), attention.to_qkv);
  return linear(attend_within_frames(qkv, rows), attention.proj).add_(x);
}

}  // namespace

void WanResidualBlock::weights(const Visit& visit, const std::string& name, int64_t in, int64_t out) {
  visit(norm1, {.names = {name + ".norm1.gamma"}, .stored = {in, 1, 1, 1}, .shape = {in}});
  conv1.weights(visit, name + ".conv1", out, in);
  visit(norm2, {.names = {name + ".norm2.gamma"}, .stored = {out, 1, 1, 1}, .shape = {out}});
  conv2.weights(visit, name + ".conv2", out, out);
  if (in != out) shortcut.weights(visit, name + ".conv_shortcut", out, in, true, {out, in, 1, 1, 1});
}

void WanResidualBlock::finish() {
  if (!shortcut.weight.defined()) return;
  shortcut = shortcut.in(shortcut.bias.scalar_type());  // no product of a layer unpacks it
  conv2.bias = conv2.bias + shortcut.bias;
}

void WanVaeAttention::weights(const Visit& visit, const std::string& name, int64_t channels) {
  visit(norm, {.names = {name + ".norm.gamma"}, .stored = {channels, 1, 1}, .shape = {channels}});
  to_qkv.weights(visit, name + ".to_qkv", 3 * channels, channels, true, {3 * channels, channels, 1, 1});
  proj.weights(visit, name + ".proj", channels, channels, true, {channels, channels, 1, 1});
}

void WanMidBlock::weights(const Visit& visit, const std::string& name, int64_t channels) {
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i].weights(visit, name + ".resnets." + std::to_string(i), channels, channels);
  attention.weights(visit, name + ".attentions.0", channels);
}

void WanResampler::weights(const Visit& visit, const std::string& name, int64_t in, int64_t out,
                           std::optional<int64_t> time_out) {
  if (time_out) time_conv.emplace().weights(visit, name + ".time_conv", *time_out, in, 1);
  visit(weight, parameter(name + ".resample.1.weight", {out, in, 3, 3}));
  visit(bias, parameter(name + ".resample.1.bias", {out}));
}

at::Tensor convolve_normed(const at::Tensor& gamma, const CausalConv3d& conv, at::Tensor x, ConvHistory& history,
                           const at::Tensor& input_bias, bool with_bias) {
  const auto norm_silu = [](const at::Tensor& weight, const at::Tensor& given, const at::Tensor& out,
                            const at::Tensor& bias, const RowSplit* /*rows: each pixel by itself*/) {
    rms_norm_silu(given, weight, out, bias);
  };
  return convolve_normed(gamma, conv, std::move(x), input_bias, norm_silu, history, with_bias);
}

at::Tensor residual_block(const WanResidualBlock& block, const at::Tensor& x, ConvHistory& history) {
  const bool same_width = !block.shortcut.weight.defined(), carried = carries_biases(x);
  at::Tensor hidden = convolve_normed(block.norm1, block.conv1, x, history, {}, !carried);
  hidden = convolve_normed(block.norm2, block.conv2, std::move(hidden), history,
                           carried ? block.conv1.bias : at::Tensor(), !(carried && same_width));
  if (same_width) {
    add_residual(hidden, x, carried ? block.conv2.bias : at::Tensor());
  } else {
    hidden.view({-1, hidden.size(3)}).addmm_(x.view({-1, x.size(3)}), block.shortcut.weight.t());
  }
  return hidden;
}

at::Tensor mid_block(const WanMidBlock& block, at::Tensor x, ConvHistory& history) {
  x = residual_block(block.blocks[0], x, history);
  x = attend(block.attention, x, history.rows);
  return residual_block(block.blocks[1], x, history);
}

}  // namespace sparsereel::models
