// Wan's 3D causal encoder, a chunk of frames at a time.
#include "models/families/wan/encoder.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "models/vae/between_convolutions.h"

namespace sparsereel::models {
namespace {

// Halves frames: each two become one, which also sees the frame before them. A video's first frame stays as it is.
at::Tensor halve_frames(const CausalConv3d& conv, const at::Tensor& x, ConvHistory& history) {
  at::Tensor& last = history.frames[&conv];
  const bool is_first = !last.defined();
  const at::Tensor seen = is_first ? x : at::cat({last, x});
  last = history.ends ? at::Tensor() : x.narrow(0, x.size(0) - 1, 1).clone();
  if (is_first) return x;
  const at::Tensor halved = convolve(seen.permute({3, 0, 1, 2}).unsqueeze(0), conv.weight, conv.bias,
                                     /*padding=*/{0, 0, 0}, /*stride=*/{2, 1, 1});
  return halved.squeeze(0).permute({1, 2, 3, 0}).contiguous();
}

// Shrinks x [F, H, W, in] to [F / times, H / side, W / side, out]. Each output pixel first takes the channels of all
// pixels that it replaces, in the order (channel, frame, row, column). It then averages them in `out` equal groups.
// Zero frames precede the first frame of a video.
at::Tensor dealt_means(const at::Tensor& x, int64_t out, int64_t times, int64_t side) {
  const int64_t missing = (times - x.size(0) % times) % times, height = x.size(1), width = x.size(2);
  const at::Tensor whole = missing == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, 0, 0, 0, missing, 0});
  return whole.view({whole.size(0) / times, times, height / side, side, width / side, side, x.size(3)})
      .permute({0, 2, 4, 6, 1, 3, 5})
      .reshape({whole.size(0) / times, height / side, width / side, out, -1})
      .mean(-1);
}

at::Tensor down_block(const WanDownBlock& block, at::Tensor x, bool is_residual, ConvHistory& history) {
  at::Tensor shortcut;
  if (is_residual) {
    const int64_t side = block.downsampler ? 2 : 1, times = block.downsampler && block.downsampler->time_conv ? 2 : 1;
    shortcut = dealt_means(x, block.blocks.back().conv2.weight.size(0), times, side);
  }
  for (const WanResidualBlock& layer : block.blocks) x = residual_block(layer, x, history);
  if (block.downsampler) {
    x = downsample_pixels(x, block.downsampler->weight, block.downsampler->bias);
    if (block.downsampler->time_conv) x = halve_frames(*block.downsampler->time_conv, x, history);
  }
  if (is_residual) x.add_(shortcut);
  return x;
}

}  // namespace

void WanEncoder::weights(const Visit& visit, const WanVaeConfig& config) {
  const std::vector<WanVaeLevel> levels = encoder_levels(config);
  const int64_t widest = levels.back().out, moments = 2 * config.z_dim;
  const std::string blocks = "encoder.down_blocks.";
  conv_in.weights(visit, "encoder.conv_in", levels.front().in, config.in_channels);
  down.resize(levels.size());
  int layer = 0;  // of the plain encoder, which numbers the layers of all levels in one sequence
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

at::Tensor encode_frames(const WanEncoder& encoder, const at::Tensor& frames, ConvHistory& history) {
  at::Tensor x = convolve_copied(encoder.conv_in, frames, history);
  for (const WanDownBlock& block : encoder.down) x = down_block(block, std::move(x), encoder.is_residual, history);
  x = mid_block(encoder.mid, std::move(x), history);
  x = convolve_normed(encoder.norm_out, encoder.conv_out, std::move(x), history);
  return linear(x, encoder.quant_conv);
}

}  // namespace sparsereel::models
