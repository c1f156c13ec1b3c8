// Wan's 3D causal decoder. It decodes one chunk of frames at a time.
#include "models/families/wan/decoder.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "models/vae/between_convolutions.h"

namespace sparsereel::models {
namespace {

// Doubles all frames of x [F, H, W, C] except the video's first frame, which does not pass through the convolution.
at::Tensor double_frames(const CausalConv3d& conv, const at::Tensor& x, ConvHistory& history) {
  const int64_t frames = x.size(0), height = x.size(1), width = x.size(2), channels = x.size(3);
  at::Tensor& remembered = history.frames[&conv];
  if (!remembered.defined()) {
    remembered = at::zeros({kHistoryFrames, height, width, channels}, x.options());
    return x;
  }
  return convolve_copied(conv, x, history)
      .view({frames, height, width, 2, channels})
      .permute({0, 3, 1, 2, 4})
      .reshape({2 * frames, height, width, channels});
}

// Adds x [F, H, W, in], enlarged without weights, to `enlarged` [F', 2 H, 2 W, out]. Each pixel of x becomes `times`
// frames of 2 x 2 pixels with `out` channels. These elements, in the order (channel, frame, row, column), are the
// pixel's `in` channels, each repeated equally often. Of the frames that a video's first frame becomes, only the last
// is used.
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
  const WanResampler& upsampler = *block.upsampler;
  if (upsampler.time_conv) x = double_frames(*upsampler.time_conv, x, history);
  x = upsample_pixels(x, upsampler.weight, upsampler.bias, history.rows);
  if (is_residual) add_dealt_out(x, entered, upsampler.time_conv ? 2 : 1);
  return x;
}

}  // namespace

void WanDecoder::weights(const Visit& visit, const WanVaeConfig& config) {
  const std::vector<WanVaeLevel> levels = decoder_levels(config);
  const int64_t widest = levels.front().in, narrowest = levels.back().out;
  post_quant_conv.weights(visit, "post_quant_conv", config.z_dim, config.z_dim, true,
                          {config.z_dim, config.z_dim, 1, 1, 1});
  conv_in.weights(visit, "decoder.conv_in", widest, config.z_dim);
  mid.weights(visit, "decoder.mid_block", widest);
  up.resize(levels.size());
  for (size_t i = 0; i < levels.size(); ++i) {
    const std::string name = "decoder.up_blocks." + std::to_string(i);
    list_residual_blocks(up[i].blocks, visit, name + ".resnets", config.num_res_blocks + 1, levels[i].in,
                         levels[i].out);
    if (levels[i].resized == 0) continue;
    const int64_t out = levels[i].out;
    up[i].upsampler.emplace().weights(visit, name + (config.is_residual ? ".upsampler" : ".upsamplers.0"), out,
                                      levels[i].resized,
                                      levels[i].resizes_time ? std::optional(2 * out) : std::nullopt);
  }
  visit(norm_out, {.names = {"decoder.norm_out.gamma"}, .stored = {narrowest, 1, 1, 1}, .shape = {narrowest}});
  conv_out.weights(visit, "decoder.conv_out", config.out_channels, narrowest);
  is_residual = config.is_residual;
  out_channels = config.out_channels;
}

void WanDecoder::finish() {
  for (WanUpBlock& level : up) {
    for (WanResidualBlock& block : level.blocks) block.finish();
  }
  conv_out = with_padded_outputs(conv_out);
}

at::Tensor decode_frames(const WanDecoder& decoder, const at::Tensor& latents, ConvHistory& history) {
  at::Tensor x = convolve_copied(decoder.conv_in, linear(latents, decoder.post_quant_conv), history);
  x = mid_block(decoder.mid, std::move(x), history);
  for (const WanUpBlock& block : decoder.up) x = up_block(block, std::move(x), decoder.is_residual, history);
  x = convolve_normed(decoder.norm_out, decoder.conv_out, std::move(x), history);
  return x.narrow(3, 0, decoder.out_channels);
}

}  // namespace sparsereel::models
