// Wan's 3D causal encoder. It encodes one chunk of frames at a time.
#include "models/families/wan/encoder.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "models/vae/between_convolutions.h"

namespace sparsereel::models {
namespace {

// Halves the number of frames of x [F, H, W, C]. A new frame is computed from two frames and the frame before them. A
// video's first frame stays as it is.
at::Tensor halve_frames(const CausalConv3d& conv, const at::Tensor& x, ConvHistory& history) {
  at::Tensor& last = history.frames[&conv];
  const bool is_first = !last.defined();
  const at::Tensor seen = is_first ? x : at::cat({last, x});
  const at::Tensor next = x.narrow(0, x.size(0) - 1, 1);
  history.compare(last, next);
  last = history.ends ? at::Tensor() : next.clone();
  if (is_first) return x;
  const at::Tensor halved = convolve(seen.permute({3, 0, 1, 2}).unsqueeze(0), conv.weight, conv.bias,
                                     /*padding=*/{0, 0, 0}, /*stride=*/{2, 1, 1});
  return halved.squeeze(0).permute({1, 2, 3, 0}).contiguous();
}

// Shrinks x [F, H, W, in] to [F / times, H / side, W / side, out], without weights. An output pixel replaces times x
// side x side pixels. Their elements, in the order (channel, frame, row, column), are divided into `out` equal groups,
// and each group is averaged. If F is not a multiple of `times`, frames of zeros are put before the first.
at::Tensor dealt_means(const at::Tensor& x, int64_t out, int64_t times, int64_t side) {
  const int64_t missing = (times - x.size(0) % times) % times, height = x.size(1), width = x.size(2);
  const at::Tensor whole = missing == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, 0, 0, 0, missing, 0});
  return whole.view({whole.size(0) / times, times, height / side, side, width / side, side, x.size(3)})
      .permute({0, 2, 4, 6, 1, 3, 5})
      .reshape({whole.size(0) / times, height / side, width / side, out, -1})
      .mean(-1);
}

at::Tensor downsample(const WanResampler& downsampler, const at::Tensor& x, ConvHistory& history) {
  const at::Tensor smaller = downsample_pixels(x, downsampler.weight, downsampler.bias);
  return downsampler.time_conv ? halve_frames(*downsampler.time_conv, smaller, history) : smaller;
}

// Runs a level whose shortcut adds the shrunk input to the output.
at::Tensor residual_level(const WanDownBlock& level, at::Tensor x, ConvHistory& history) {
  const int64_t side = level.downsampler ? 2 : 1, times = level.downsampler && level.downsampler->time_conv ? 2 : 1;
  const at::Tensor shortcut = dealt_means(x, level.blocks.back().conv2.weight.size(0), times, side);
  for (const WanResidualBlock& block : level.blocks) x = residual_block(block, x, history);
  if (level.downsampler) x = downsample(*level.downsampler, x, history);
  return x.add_(shortcut);
}

}  // namespace

void WanEncoder::weights(const Visit& visit, const WanVaeConfig& config) {
  const std::vector<WanVaeLevel> levels = encoder_levels(config);
  const int64_t widest = levels.back().out, moments = 2 * config.z_dim;
  const std::string blocks = "encoder.down_blocks.";
  conv_in.weights(visit, "encoder.conv_in", levels.front().in, config.in_channels);
  down.resize(levels.size());
  int layer = 0;  // index for encoders without shortcuts, whose names number the layers of all levels in one sequence
  for (size_t i = 0; i < levels.size(); ++i) {
    const auto& [in, out, resized, resizes_time] = levels[i];
    const std::string level = blocks + std::to_string(i);
    down[i].blocks.resize(static_cast<size_t>(config.num_res_blocks));
    for (size_t j = 0; j < down[i].blocks.size(); ++j)
      list_residual_block(
          down[i].blocks[j], visit,
          config.is_residual ? level + ".resnets." + std::to_string(j) : blocks + std::to_string(layer++),
          j == 0 ? in : out, out);
    if (resized == 0) continue;
    down[i].downsampler.emplace().weights(
        visit, config.is_residual ? level + ".downsampler" : blocks + std::to_string(layer++), out, resized,
        resizes_time ? std::optional(out) : std::nullopt);
  }
  mid.weights(visit, "encoder.mid_block", widest);
  visit(norm_out, {.names = {"encoder.norm_out.gamma"}, .stored = {widest, 1, 1, 1}, .shape = {widest}});
  conv_out.weights(visit, "encoder.conv_out", moments, widest);
  quant_conv.weights(visit, "quant_conv", moments, moments, true, {moments, moments, 1, 1, 1});
  is_residual = config.is_residual;
}

void WanEncoder::finish() {
  for (WanDownBlock& level : down) {
    for (WanResidualBlock& block : level.blocks) block.finish();
  }
  const int64_t z_dim = quant_conv.bias.size(0) / 2;
  quant_conv = {.weight = quant_conv.weight.narrow(0, 0, z_dim), .bias = quant_conv.bias.narrow(0, 0, z_dim)};
}

WanVideoEncoder::WanVideoEncoder(const WanEncoder& encoder) : history_{.starts_on_zeros = true} {
  layers_.emplace_back(
      [&](const at::Tensor& x, ConvHistory& history) { return convolve_copied(encoder.conv_in, x, history); });
  for (const WanDownBlock& level : encoder.down) {
    if (encoder.is_residual) {
      layers_.emplace_back(
          [&](at::Tensor x, ConvHistory& history) { return residual_level(level, std::move(x), history); });
      continue;
    }
    for (const WanResidualBlock& block : level.blocks)
      layers_.emplace_back(
          [&](const at::Tensor& x, ConvHistory& history) { return residual_block(block, x, history); });
    if (level.downsampler)
      layers_.emplace_back(
          [&](const at::Tensor& x, ConvHistory& history) { return downsample(*level.downsampler, x, history); });
  }
  layers_.emplace_back(
      [&](at::Tensor x, ConvHistory& history) { return mid_block(encoder.mid, std::move(x), history); });
  layers_.emplace_back([&](at::Tensor x, ConvHistory& history) {
    return linear(convolve_normed(encoder.norm_out, encoder.conv_out, std::move(x), history), encoder.quant_conv);
  });
}

at::Tensor WanVideoEncoder::encode(const at::Tensor& frames, bool ends) {
  history_.ends = ends;
  const bool repeats = frames_.defined() && at::equal(frames_, frames);
  if (!repeats) {
    settled_ = 0;
    settled_x_.reset();
    frames_ = frames;
  }
  const size_t settled = settled_;
  at::Tensor x = settled == 0 ? frames : settled_x_;
  for (size_t i = settled; i < layers_.size(); ++i) {
    // Only the first layer that runs is known to have the same input as in the previous call.
    history_.changed = i == settled && repeats ? std::optional(false) : std::nullopt;
    x = layers_[i](std::move(x), history_);
    if (history_.changed != std::optional(false)) continue;
    settled_ = i + 1;
    settled_x_ = x;
  }
  return x;
}

}  // namespace sparsereel::models
