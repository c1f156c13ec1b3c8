// Open-Sora-Plan's 3D causal decoder.
#include "models/families/open_sora_plan/decoder.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <utility>

#include "models/vae/between_convolutions.h"
#include "models/vae/frame_attention.h"
#include "models/vae/row_split.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kColors = 3;

constexpr ResnetNames kPlanResnetNames = {.shortcut = ".nin_shortcut.conv"};

auto list_norms(const Visit& visit) {
  return list_group_norms(visit, OpenSoraPlanVaeConfig::kNormGroups, OpenSoraPlanVaeConfig::kNormEps);
}

void list_pixelwise(Linear& layer, const Visit& visit, const std::string& name, int64_t out, int64_t in) {
  layer.weights(visit, name + ".conv", out, in, /*has_bias=*/true, {out, in, 1, 1, 1});
}

int64_t doubled(int64_t frames) {
  return 2 * frames - 1;
}

/// Replaces each frame of x [F, H, W, C], except the first, by two. The first of the two blends three quarters of the
/// frame with a quarter of the previous frame; the second, with a quarter of the next frame. The new frame right after
/// x's first frame, and the last one, are not blended. Passes all 2 F - 1 frames in order to put(index, frame [H, W,
/// C]).
void each_of_twice_as_many(const at::Tensor& x, const auto& put) {
  const int64_t last = x.size(0) - 1;
  put(0, x[0]);
  for (int64_t i = 1; i <= last; ++i) {
    put(2 * i - 1, i == 1 ? x[1] : at::lerp(x[i], x[i - 1], 0.25));
    put(2 * i, i == last ? x[i] : at::lerp(x[i], x[i + 1], 0.25));
  }
}

at::Tensor twice_as_many_frames(const at::Tensor& x) {
  at::Tensor frames = at::empty({doubled(x.size(0)), x.size(1), x.size(2), x.size(3)}, x.options());
  each_of_twice_as_many(x, [&](int64_t to, const at::Tensor& frame) { frames[to].copy_(frame); });
  return frames;
}

/// Interpolates a frame [H, W, C] bilinearly to [2 H, 2 W, C].
at::Tensor between_pixels(const at::Tensor& frame) {
  const at::Tensor picture = frame.permute({2, 0, 1}).unsqueeze(0);
  return at::upsample_bilinear2d(picture, {2 * frame.size(0), 2 * frame.size(1)}, /*align_corners=*/false)
      .squeeze(0)
      .permute({1, 2, 0});
}

at::Tensor upsample_video(const CausalConv3d& conv, const at::Tensor& x, ConvHistory& history) {
  const Border border = conv.border(history.rows);
  const at::Tensor buffer =
      causal_buffer(doubled(x.size(0)), 2 * x.size(1), 2 * x.size(2), x.size(3), x.options(), border);
  const at::Tensor frames = new_frames(buffer, border);
  const at::Tensor given = history.rows == nullptr ? x : history.rows->surrounded(x, RowSplit::Outside::its_edge);
  // Rows of the result to drop: half of the extra rows lie above x, and each becomes two.
  const int64_t above = given.size(1) - x.size(1);
  each_of_twice_as_many(given, [&](int64_t to, const at::Tensor& frame) {
    frames[to].copy_(between_pixels(frame).narrow(0, above, frames.size(1)));
  });
  return causal_conv3d(conv, buffer, history);
}

/// Computes attention within each frame, one frame at a time, because the scores of a frame are [pixels, pixels].
at::Tensor attend(const OpenSoraPlanAttention& attention, const at::Tensor& x, const RowSplit* rows) {
  const ChannelAffine affine = group_affine(attention.norm, x, rows);
  at::Tensor result = at::empty_like(x);
  for (int64_t i = 0; i < x.size(0); ++i) {
    const at::Tensor frame = x.narrow(0, i, 1);
    const at::Tensor normed = at::addcmul(affine.shift, frame.to(at::kFloat), affine.scale).to(x.scalar_type());
    const at::Tensor seen = attend_within_frames(linear(normed, attention.qkv), rows);
    result.narrow(0, i, 1).copy_(frame + linear(seen, attention.out));
  }
  return result;
}

}  // namespace

void OpenSoraPlanAttention::weights(const Visit& visit, const std::string& name, int64_t channels) {
  const auto below_each_other = [&](const std::string& part) {
    return std::vector<std::string>{name + ".q.conv" + part, name + ".k.conv" + part, name + ".v.conv" + part};
  };
  list_norms(visit)(norm, name + ".norm", channels);
  visit(qkv.weight, {.names = below_each_other(".weight"),
                     .stored = {channels, channels, 1, 1, 1},
                     .shape = {3 * channels, channels}});
  visit(qkv.bias, {.names = below_each_other(".bias"), .stored = {channels}, .shape = {3 * channels}});
  list_pixelwise(out, visit, name + ".proj_out", channels, channels);
}

void OpenSoraPlanLevel::weights(const Visit& visit, const OpenSoraPlanVaeConfig& config, size_t index, int64_t in) {
  using Upsampling = OpenSoraPlanVaeConfig::Upsampling;
  const std::string name = "decoder.up." + std::to_string(index), conv = name + ".upsample.conv.conv";
  const int64_t out = config.hidden_size * config.hidden_size_mult[index];
  list_resnets(resnets, visit, name + ".block", config.num_res_blocks + 1, in, out, list_norms(visit),
               kPlanResnetNames);
  if (config.upsampling[index] == Upsampling::pixels) {
    visit(pixels_weight, {.names = {conv + ".weight"}, .stored = {out, out, 1, 3, 3}, .shape = {out, out, 3, 3}});
    visit(pixels_bias, parameter(conv + ".bias", {out}));
  } else if (config.upsampling[index] == Upsampling::pixels_and_frames) {
    upsampler.emplace().weights(visit, conv, out, out);
  }
  doubles_frames = config.doubles_frames[index];
}

void OpenSoraPlanDecoder::weights(const Visit& visit, const OpenSoraPlanVaeConfig& config) {
  const int64_t widest = config.hidden_size * config.hidden_size_mult.back();
  if (config.use_quant_layer)
    list_pixelwise(post_quant_conv.emplace(), visit, "post_quant_conv", config.z_channels, config.embed_dim);
  conv_in.weights(visit, "decoder.conv_in.conv", widest, config.z_channels);
  mid_first.weights(visit, "decoder.mid.block_1", widest, widest, list_norms(visit));
  attention.weights(visit, "decoder.mid.attn_1", widest);
  mid_last.weights(visit, "decoder.mid.block_2", widest, widest, list_norms(visit));
  levels.resize(config.hidden_size_mult.size());
  int64_t channels = widest;
  for (size_t i = levels.size(); i-- > 0;) {
    levels[levels.size() - 1 - i].weights(visit, config, i, channels);
    channels = config.hidden_size * config.hidden_size_mult[i];
  }
  list_norms(visit)(norm_out, "decoder.norm_out", channels);
  conv_out.weights(visit, "decoder.conv_out.conv", kColors, channels);
}

void OpenSoraPlanDecoder::finish() {
  for (OpenSoraPlanLevel& level : levels) {
    for (auto& block : level.resnets) block.finish();
  }
  conv_out = with_padded_outputs(conv_out);
}

at::Tensor decode_frames(const OpenSoraPlanDecoder& decoder, const at::Tensor& latents, const RowSplit* rows) {
  ConvHistory history = {.ends = true, .rows = rows};
  const at::Tensor z = decoder.post_quant_conv ? linear(latents, *decoder.post_quant_conv) : latents;
  at::Tensor x = resnet(decoder.mid_first, convolve_copied(decoder.conv_in, z, history), video_norm_silu, history);
  x = resnet(decoder.mid_last, attend(decoder.attention, x, rows), video_norm_silu, history);
  for (const OpenSoraPlanLevel& level : decoder.levels) {
    for (const auto& block : level.resnets) x = resnet(block, x, video_norm_silu, history);
    if (level.pixels_weight.defined()) x = upsample_pixels(x, level.pixels_weight, level.pixels_bias, rows);
    if (level.upsampler) x = upsample_video(*level.upsampler, x, history);
    if (level.doubles_frames) x = twice_as_many_frames(x);
  }
  x = convolve_normed(decoder.norm_out, decoder.conv_out, std::move(x), {}, video_norm_silu, history);
  return x.narrow(3, 0, kColors);
}

}  // namespace sparsereel::models
