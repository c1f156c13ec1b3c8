// Residual blocks, attention and resampling of Wan's VAE.
#include "models/families/wan/vae_layers.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "models/vae/between_convolutions.h"
#include "models/vae/frame_attention.h"
#include "models/vae/rms_norm.h"

namespace sparsereel::models {
namespace {

constexpr ResnetNames kResidualNames = {.convolution = ""};

auto list_gammas(const Visit& visit) {
  return [&visit](at::Tensor& gamma, const std::string& name, int64_t channels) {
    visit(gamma, {.names = {name + ".gamma"}, .stored = {channels, 1, 1, 1}, .shape = {channels}});
  };
}

void gamma_norm_silu(const at::Tensor& gamma, const at::Tensor& x, const at::Tensor& out, const at::Tensor& bias,
                     const RowSplit* /*rows: each pixel is normalized alone*/) {
  rms_norm_silu(x, gamma, out, bias);
}

at::Tensor attend(const WanVaeAttention& attention, const at::Tensor& x, const RowSplit* rows) {
  const at::Tensor qkv = linear(rms_norm(x, attention.norm), attention.to_qkv);
  return linear(attend_within_frames(qkv, rows), attention.proj).add_(x);
}

}  // namespace

void list_residual_block(WanResidualBlock& block, const Visit& visit, const std::string& name, int64_t in,
                         int64_t out) {
  block.weights(visit, name, in, out, list_gammas(visit), kResidualNames);
}

void list_residual_blocks(std::vector<WanResidualBlock>& blocks, const Visit& visit, const std::string& name,
                          int64_t count, int64_t in, int64_t out) {
  list_resnets(blocks, visit, name, count, in, out, list_gammas(visit), kResidualNames);
}

void WanVaeAttention::weights(const Visit& visit, const std::string& name, int64_t channels) {
  visit(norm, {.names = {name + ".norm.gamma"}, .stored = {channels, 1, 1}, .shape = {channels}});
  to_qkv.weights(visit, name + ".to_qkv", 3 * channels, channels, true, {3 * channels, channels, 1, 1});
  proj.weights(visit, name + ".proj", channels, channels, true, {channels, channels, 1, 1});
}

void WanMidBlock::weights(const Visit& visit, const std::string& name, int64_t channels) {
  list_residual_blocks(blocks, visit, name + ".resnets", 2, channels, channels);
  attention.weights(visit, name + ".attentions.0", channels);
}

void WanResampler::weights(const Visit& visit, const std::string& name, int64_t in, int64_t out,
                           std::optional<int64_t> time_out) {
  if (time_out) time_conv.emplace().weights(visit, name + ".time_conv", *time_out, in, 1);
  visit(weight, parameter(name + ".resample.1.weight", {out, in, 3, 3}));
  visit(bias, parameter(name + ".resample.1.bias", {out}));
}

at::Tensor convolve_normed(const at::Tensor& gamma, const CausalConv3d& conv, at::Tensor x, ConvHistory& history) {
  return convolve_normed(gamma, conv, std::move(x), {}, gamma_norm_silu, history);
}

at::Tensor residual_block(const WanResidualBlock& block, const at::Tensor& x, ConvHistory& history) {
  return resnet(block, x, gamma_norm_silu, history);
}

at::Tensor mid_block(const WanMidBlock& block, at::Tensor x, ConvHistory& history) {
  x = residual_block(block.blocks[0], x, history);
  x = attend(block.attention, x, history.rows);
  return residual_block(block.blocks[1], x, history);
}

}  // namespace sparsereel::models
