// Processes tiles row by row, from left to right. Keeps only the strips of a tile that later tiles will be blended
// with; the rest of the tile goes directly into the result.
#include "models/vae/tiling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "models/vae/row_split.h"

namespace sparsereel::models {
namespace {

// Returns the last `length` rows (dim 3) or columns (dim 4) of a finished tile, for its neighbor.
at::Tensor last_strip(const at::Tensor& tile, int64_t dim, int64_t length) {
  length = std::min(length, tile.size(dim));
  return tile.narrow(dim, tile.size(dim) - length, length).clone();
}

// Blends the tile's first rows (dim 3) or columns (dim 4) with the neighbor's strip. The tile's weight grows linearly
// from 0.
void blend(const at::Tensor& strip, at::Tensor& tile, int64_t dim) {
  const int64_t length = std::min(strip.size(dim), tile.size(dim));
  std::vector<int64_t> shape(5, 1);
  shape[static_cast<size_t>(dim)] = length;
  const at::Tensor weight =
      (at::arange(length, tile.options().dtype(at::kFloat)) / static_cast<double>(length)).view(shape);
  at::Tensor edge = tile.narrow(dim, 0, length);
  edge.copy_(at::lerp(strip.narrow(dim, strip.size(dim) - length, length).to(at::kFloat), edge.to(at::kFloat), weight));
}

// How many pixels of the input, and of the output, correspond to one latent pixel along an axis.
struct Scales {
  int64_t in, out;
};

at::Tensor code_tiles(const TilePlan& plan, const Scales& scale, const at::Tensor& whole, const TileCoder& code) {
  const int64_t height = whole.size(3) / scale.in, width = whole.size(4) / scale.in;
  const int64_t row_overlap = (plan.height.size - plan.height.stride) * scale.out;
  const int64_t column_overlap = (plan.width.size - plan.width.stride) * scale.out;
  // Bottom strips of the tiles in the row above.
  std::vector<at::Tensor> above(static_cast<size_t>(plan.width.count(width)));
  at::Tensor result;
  for (int64_t top = 0; top < height; top += plan.height.stride) {
    at::Tensor left;  // right strip of the tile to the left
    for (int64_t start = 0; start < width; start += plan.width.stride) {
      at::Tensor tile = code(whole.narrow(3, top * scale.in, std::min(plan.height.size, height - top) * scale.in)
                                 .narrow(4, start * scale.in, std::min(plan.width.size, width - start) * scale.in));
      at::Tensor& strip_above = above[static_cast<size_t>(start / plan.width.stride)];
      if (top > 0) blend(strip_above, tile, 3);
      if (start > 0) blend(left, tile, 4);
      strip_above = last_strip(tile, 3, row_overlap);
      left = last_strip(tile, 4, column_overlap);

      if (!result.defined())
        result = at::empty({1, tile.size(1), tile.size(2), height * scale.out, width * scale.out}, tile.options());
      const int64_t rows = std::min(plan.height.stride * scale.out, tile.size(3));
      const int64_t columns = std::min(plan.width.stride * scale.out, tile.size(4));
      result.narrow(3, top * scale.out, rows)
          .narrow(4, start * scale.out, columns)
          .copy_(tile.narrow(3, 0, rows).narrow(4, 0, columns));
    }
  }
  return result;
}

constexpr int64_t kFramesAPiece = 8;  // frames per call of `take` for a video that was decoded in tiles

/// Returns a function that counts a finished step, and reports it to `progress`. `total` is the number of all steps.
std::function<void()> step_counter(int64_t total, const VaeProgress& progress) {
  return [total, &progress, done = int64_t{0}]() mutable {
    ++done;
    if (progress) progress(done, total);
  };
}

/// Decodes this rank's rows. The first rank joins the bands of all ranks, and hands out whole frames.
void decode_rows(const RowSplit& rows, const at::Tensor& latents, const TakeFrames& take, const PieceDecoder& decode,
                 const std::function<void()>& step_done) {
  const Slice own = rows.own();
  decode(latents.narrow(3, own.first, own.count), [&](const at::Tensor& frames) {
    if (const at::Tensor whole = rows.collected(frames, 3); whole.defined()) take(whole);
    step_done();
  });
}

at::Tensor decode_tile(const at::Tensor& tile, const PieceDecoder& decode, const std::function<void()>& step_done) {
  std::vector<at::Tensor> pieces;
  decode(tile, [&](const at::Tensor& frames) {
    // Frames may be a view that leaves out unused channels (with_padded_outputs()). A contiguous copy does not keep the
    // memory of these channels.
    pieces.push_back(frames.contiguous());
    step_done();
  });
  return at::cat(pieces, 2);
}

}  // namespace

TileAxis tile_axis(int64_t sample, int64_t scale, double overlap) {
  const int64_t size = std::max<int64_t>(1, sample / 2 / scale);
  const auto stride = static_cast<int64_t>(static_cast<double>(size) * (1 - overlap));
  return {.size = size, .stride = std::max<int64_t>(1, stride)};
}

TileAxis fixed_tile_axis(int64_t pixels_a_latent) {
  return {.size = std::max<int64_t>(1, 256 / pixels_a_latent), .stride = std::max<int64_t>(1, 192 / pixels_a_latent)};
}

at::Tensor decode_tiles(const TilePlan& plan, const at::Tensor& latents, const TileCoder& decode) {
  return code_tiles(plan, {.in = 1, .out = plan.scale}, latents, decode);
}

at::Tensor encode_tiles(const TilePlan& plan, const at::Tensor& frames, const TileCoder& encode) {
  return code_tiles(plan, {.in = plan.scale, .out = 1}, frames, encode);
}

void decode_by_plan(const TilePlan& plan, const at::Tensor& latents, const DecodeMode& mode, int64_t steps,
                    const TakeFrames& take, const VaeProgress& progress, const PieceDecoder& decode) {
  const int64_t height = latents.size(3), width = latents.size(4);
  const bool tiled = mode.tiled && mode.rows == nullptr && plan.needed(height, width);
  const std::function<void()> step_done = step_counter(steps * (tiled ? plan.count(height, width) : 1), progress);
  if (mode.rows != nullptr) return decode_rows(*mode.rows, latents, take, decode, step_done);
  if (!tiled) {
    decode(latents, [&](const at::Tensor& frames) {
      take(frames);
      step_done();
    });
    return;
  }
  const at::Tensor video =
      decode_tiles(plan, latents, [&](const at::Tensor& tile) { return decode_tile(tile, decode, step_done); });
  for (const at::Tensor& frames : video.split(kFramesAPiece, 2)) take(frames);
}

at::Tensor encode_by_plan(const TilePlan& plan, const at::Tensor& frames, bool tiled, int64_t steps,
                          const VaeProgress& progress, const StepCoder& encode) {
  const int64_t height = frames.size(3) / plan.scale, width = frames.size(4) / plan.scale;
  tiled = tiled && plan.needed(height, width);
  const std::function<void()> step_done = step_counter(steps * (tiled ? plan.count(height, width) : 1), progress);
  if (!tiled) return encode(frames, step_done);
  return encode_tiles(plan, frames, [&](const at::Tensor& tile) { return encode(tile, step_done); });
}

}  // namespace sparsereel::models
