// Wan's 3D causal decoder, a chunk of frames at a time.
#include "models/families/wan/decoder.h"

#include <ATen/ATen.h>

#include <utility>

#include "models/vae/between_convolutions.h"
#include "models/vae/rms_norm.h"

namespace sparsereel::models {
namespace {

// conv(silu(norm(x))); x is let go as soon as it is normalised, which frees it unless the caller holds it.
// input_bias: that x still lacks; with_bias off: what comes out lacks conv's.
at::Tensor convolve_normed(const at::Tensor& gamma, const CausalConv3d& conv, at::Tensor x, ConvHistory& history,
                           const at::Tensor& input_bias = {}, bool with_bias = true) {
  const at::Tensor buffer = causal_buffer(x.size(0), x.size(1), x.size(2), x.size(3), x.options());
  rms_norm_silu(x, gamma, new_frames(buffer), input_bias);
  x.reset();
  return causal_conv3d(conv, buffer, history, with_bias);
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

at::Tensor attend(const WanVaeAttention& attention, const at::Tensor& x) {
  const at::Tensor normed = rms_norm(x, attention.norm).flatten(1, 2).unsqueeze(1);  // [F, one head, H W, C]
  const std::vector<at::Tensor> qkv = linear(normed, attention.to_qkv).chunk(3, -1);
  const at::Tensor mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
  return linear(mixed.reshape(x.sizes()), attention.proj).add_(x);
}

// Each frame becomes two, but the video's first one, which the convolution never sees.
at::Tensor double_frames(const CausalConv3d& conv, const at::Tensor& x, ConvHistory& history) {
  const int64_t frames = x.size(0), height = x.size(1), width = x.size(2), channels = x.size(3);
  at::Tensor& remembered = history.frames[&conv];
  if (!remembered.defined()) {
    remembered = at::zeros({kHistoryFrames, height, width, channels}, x.options());
    return x;
  }
  const at::Tensor buffer = causal_buffer(frames, height, width, channels, x.options());
  new_frames(buffer).copy_(x);
  return causal_conv3d(conv, buffer, history)
      .view({frames, height, width, 2, channels})
      .permute({0, 3, 1, 2, 4})
      .reshape({2 * frames, height, width, channels});
}

// enlarged [F', 2 H, 2 W, out] += x [F, H, W, in], dealt out: a pixel's channels in turn, each as often, fill the
// places (channel, frame, row, column) of the pixels that it becomes. Of a video's first frame only the last one of the
// frames that it would become is there.
void add_dealt_out(const at::Tensor& enlarged, const at::Tensor& x, int64_t times) {
  const int64_t in = x.size(3), out = enlarged.size(3), places = 4 * times;
  const int64_t skipped = times - enlarged.size(0) / x.size(0);
  const at::Tensor pixels = enlarged.view({x.size(0), times - skipped, x.size(1), 2, x.size(2), 2, out});
  for (int64_t place = 4 * skipped; place < places; ++place) {
    const at::Tensor there = pixels.select(5, place % 2).select(3, place / 2 % 2).select(1, place / 4 - skipped);
    const at::Tensor channels =
        at::arange(out, x.options().dtype(at::kLong)).mul_(places).add_(place).mul_(in).floor_divide_(out * places);
    there.add_(in == out ? x : x.index_select(3, channels));
  }
}

at::Tensor up_block(const WanUpBlock& block, at::Tensor x, bool is_residual, ConvHistory& history) {
  const at::Tensor entered = is_residual && block.upsampler ? x : at::Tensor();
  for (const WanResidualBlock& layer : block.blocks) x = residual_block(layer, x, history);
  if (!block.upsampler) return x;
  const WanUpsampler& upsampler = *block.upsampler;
  if (upsampler.time_conv) x = double_frames(*upsampler.time_conv, x, history);
  x = upsample_pixels(x, upsampler.weight, upsampler.bias);
  if (is_residual) add_dealt_out(x, entered, upsampler.time_conv ? 2 : 1);
  return x;
}

}  // namespace

void WanResidualBlock::weights(const Visit& visit, const std::string& name, int64_t in, int64_t out) {
  visit(norm1, {.names = {name + ".norm1.gamma"}, .stored = {in, 1, 1, 1}, .shape = {in}});
  conv1.weights(visit, name + ".conv1", out, in);
  visit(norm2, {.names = {name + ".norm2.gamma"}, .stored = {out, 1, 1, 1}, .shape = {out}});
  conv2.weights(visit, name + ".conv2", out, out);
  if (in != out) shortcut.weights(visit, name + ".conv_shortcut", out, in, true, {out, in, 1, 1, 1});
}

void WanVaeAttention::weights(const Visit& visit, const std::string& name, int64_t channels) {
  visit(norm, {.names = {name + ".norm.gamma"}, .stored = {channels, 1, 1}, .shape = {channels}});
  to_qkv.weights(visit, name + ".to_qkv", 3 * channels, channels, true, {3 * channels, channels, 1, 1});
  proj.weights(visit, name + ".proj", channels, channels, true, {channels, channels, 1, 1});
}

void WanUpsampler::weights(const Visit& visit, const std::string& name, const WanVaeLevel& level) {
  if (level.doubles_time) time_conv.emplace().weights(visit, name + ".time_conv", 2 * level.out, level.out, 1);
  visit(weight, parameter(name + ".resample.1.weight", {level.enlarged, level.out, 3, 3}));
  visit(bias, parameter(name + ".resample.1.bias", {level.enlarged}));
}

void WanDecoder::weights(const Visit& visit, const WanVaeConfig& config) {
  const std::vector<WanVaeLevel> levels = levels_of(config);
  const int64_t widest = levels.front().in, narrowest = levels.back().out;
  post_quant_conv.weights(visit, "post_quant_conv", config.z_dim, config.z_dim, true,
                          {config.z_dim, config.z_dim, 1, 1, 1});
  conv_in.weights(visit, "decoder.conv_in", widest, config.z_dim);
  for (size_t i = 0; i < mid.size(); ++i)
    mid[i].weights(visit, "decoder.mid_block.resnets." + std::to_string(i), widest, widest);
  attention.weights(visit, "decoder.mid_block.attentions.0", widest);
  up.resize(levels.size());
  for (size_t i = 0; i < levels.size(); ++i) {
    const std::string name = "decoder.up_blocks." + std::to_string(i);
    up[i].blocks.resize(static_cast<size_t>(config.num_res_blocks) + 1);
    for (size_t j = 0; j < up[i].blocks.size(); ++j)
      up[i].blocks[j].weights(visit, name + ".resnets." + std::to_string(j), j == 0 ? levels[i].in : levels[i].out,
                              levels[i].out);
    if (levels[i].enlarged == 0) continue;
    up[i].upsampler.emplace().weights(visit, name + (config.is_residual ? ".upsampler" : ".upsamplers.0"), levels[i]);
  }
  visit(norm_out, {.names = {"decoder.norm_out.gamma"}, .stored = {narrowest, 1, 1, 1}, .shape = {narrowest}});
  conv_out.weights(visit, "decoder.conv_out", config.out_channels, narrowest);
  is_residual = config.is_residual;
  out_channels = config.out_channels;
}

void WanDecoder::finish() {
  for (WanUpBlock& level : up) {
    for (WanResidualBlock& block : level.blocks) {
      if (!block.shortcut.weight.defined()) continue;
      block.shortcut = block.shortcut.in(block.shortcut.bias.scalar_type());  // no product of a layer unpacks it
      block.conv2.bias = block.conv2.bias + block.shortcut.bias;
    }
  }
  conv_out = with_padded_outputs(conv_out);
}

at::Tensor decode_frames(const WanDecoder& decoder, const at::Tensor& latents, ConvHistory& history) {
  const at::Tensor buffer =
      causal_buffer(latents.size(0), latents.size(1), latents.size(2), latents.size(3), latents.options());
  new_frames(buffer).copy_(linear(latents, decoder.post_quant_conv));
  at::Tensor x = causal_conv3d(decoder.conv_in, buffer, history);
  x = residual_block(decoder.mid[0], x, history);
  x = attend(decoder.attention, x);
  x = residual_block(decoder.mid[1], x, history);
  for (const WanUpBlock& block : decoder.up) x = up_block(block, std::move(x), decoder.is_residual, history);
  x = convolve_normed(decoder.norm_out, decoder.conv_out, std::move(x), history);
  return x.narrow(3, 0, decoder.out_channels);
}

}  // namespace sparsereel::models
