// Mochi's 3D causal decoder. The larger the frames, the fewer it decodes at once.
#include "models/families/mochi/decoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "models/vae/row_split.h"

namespace sparsereel::models {
namespace {

constexpr double kMochiNormEps = 1e-5;  // fixed by the reference

at::Tensor residual_blocks(const std::vector<ResnetBlock<GroupNorm>>& blocks, at::Tensor x, ConvHistory& history) {
  for (const auto& block : blocks) x = resnet(block, x, group_norm_silu, history);
  return x;
}

// Expands each pixel of x [F, H, W, in] to a box of frames x side x side pixels. Returns [frames F, side H, side W,
// out].
at::Tensor expand(const MochiExpansion& expansion, at::Tensor x) {
  const int64_t times = expansion.frames, side = expansion.side;
  const at::Tensor pixels = linear(x, expansion.proj).unflatten(3, {times, side, side, expansion.out});
  x.reset();
  return pixels.permute({0, 3, 1, 4, 2, 5, 6}).flatten(4, 5).flatten(2, 3).flatten(0, 1);
}

struct Decoding {
  const MochiDecoder& decoder;
  ConvHistory& history;
  int64_t elements;
  const std::function<void(const at::Tensor& frames)>& done;
};

/// Splits x into parts of frames that are small enough to be processed at once, and calls `each` for every part. If
/// there is only one part, `each` gets x itself, so that it can free x.
void in_parts(const Decoding& decoding, at::Tensor x, const std::function<void(at::Tensor part)>& each) {
  const RowSplit* rows = decoding.history.rows;
  const int64_t height = rows == nullptr ? x.size(1) : rows->most(x.size(1));
  const int64_t at_once = frames_at_once(x.size(0), height * x.size(2) * x.size(3), decoding.elements);
  if (at_once == x.size(0)) return each(std::move(x));
  for (const at::Tensor& part : x.split(at_once)) each(part);
}

void decode_level(const Decoding& decoding, size_t index, at::Tensor x) {
  const MochiLevel& level = decoding.decoder.levels[index];
  in_parts(decoding, std::move(x), [&](at::Tensor part) {
    part = residual_blocks(level.blocks, std::move(part), decoding.history);
    if (level.expansion) return decode_level(decoding, index + 1, expand(*level.expansion, std::move(part)));
    const at::Tensor colors = linear(at::silu_(part), decoding.decoder.proj_out);
    decoding.done(colors.narrow(3, 0, decoding.decoder.out_channels));
  });
}

}  // namespace

void MochiExpansion::weights(const Visit& visit, const std::string& name, int64_t in) {
  proj.weights(visit, name + ".proj", out * frames * side * side, in);
}

void MochiDecoder::weights(const Visit& visit, const MochiVaeConfig& config) {
  const std::vector<int64_t>& channels = config.block_out_channels;
  const auto list_norm = list_group_norms(visit, MochiVaeConfig::kNormGroups, kMochiNormEps, ".norm_layer");
  const auto list_blocks = [&](std::vector<ResnetBlock<GroupNorm>>& blocks, const std::string& name, int64_t count,
                               int64_t width) {
    list_resnets(blocks, visit, name + ".resnets", count, width, width, list_norm);
    for (ResnetBlock<GroupNorm>& block : blocks) block.conv1.repeats_edges = block.conv2.repeats_edges = true;
  };
  conv_in.weights(visit, "decoder.conv_in", channels.back(), config.latent_channels, /*has_bias=*/true,
                  {channels.back(), config.latent_channels, 1, 1, 1});
  list_blocks(before, "decoder.block_in", config.layers_per_block.back(), channels.back());
  levels.resize(channels.size());
  for (size_t i = channels.size(); i-- > 0;) {
    MochiLevel& level = levels[channels.size() - 1 - i];
    const std::string name =
        i == 0 ? "decoder.block_out" : "decoder.up_blocks." + std::to_string(channels.size() - 1 - i);
    list_blocks(level.blocks, name, config.layers_per_block[i], channels[i]);
    if (i == 0) break;
    level.expansion = MochiExpansion{.proj = {},
                                     .frames = config.temporal_expansions[i - 1],
                                     .side = config.spatial_expansions[i - 1],
                                     .out = channels[i - 1]};
    level.expansion->weights(visit, name, channels[i]);
  }
  out_channels = config.out_channels;
  proj_out.weights(visit, "decoder.proj_out", config.out_channels, channels.front());
}

void MochiDecoder::finish() {
  for (MochiLevel& level : levels) {
    if (!level.expansion) continue;
    MochiExpansion& expansion = *level.expansion;
    for (at::Tensor* rows : {&expansion.proj.weight, &expansion.proj.bias})
      *rows = rows->unflatten(0, {expansion.out, -1}).transpose(0, 1).flatten(0, 1).contiguous();
  }
  const int64_t missing = (8 - proj_out.weight.size(0) % 8) % 8;
  if (!proj_out.weight.is_cuda() || missing == 0 || is_stand_in(proj_out.weight)) return;
  proj_out.weight = at::constant_pad_nd(proj_out.weight, {0, 0, 0, missing});  // tensor cores write multiples of eight
  proj_out.bias = at::constant_pad_nd(proj_out.bias, {0, missing});
}

int64_t frames_at_once(int64_t frames, int64_t elements_a_frame, int64_t elements) {
  const int64_t most = std::max<int64_t>(1, elements / elements_a_frame), parts = (frames + most - 1) / most;
  return (frames + parts - 1) / parts;
}

void decode_frames(const MochiDecoder& decoder, const at::Tensor& latents, ConvHistory& history, int64_t elements,
                   const std::function<void(const at::Tensor& frames)>& done) {
  const Decoding decoding = {.decoder = decoder, .history = history, .elements = elements, .done = done};
  in_parts(decoding, linear(latents, decoder.conv_in), [&](at::Tensor part) {
    decode_level(decoding, 0, residual_blocks(decoder.before, std::move(part), history));
  });
}

}  // namespace sparsereel::models
