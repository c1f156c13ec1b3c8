// Tiles in reading order; only the strips that a later tile blends with are kept, the rest goes straight into the
// video.
#include "models/vae/tiling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace sparsereel::models {
namespace {

// The last `length` rows (dim 3) or columns (dim 4) of a finished tile, for its neighbour.
at::Tensor last_strip(const at::Tensor& tile, int64_t dim, int64_t length) {
  length = std::min(length, tile.size(dim));
  return tile.narrow(dim, tile.size(dim) - length, length).clone();
}

// tile's first rows or columns become a ramp from the neighbour's strip to the tile.
void blend(const at::Tensor& strip, at::Tensor& tile, int64_t dim) {
  const int64_t length = std::min(strip.size(dim), tile.size(dim));
  std::vector<int64_t> shape(5, 1);
  shape[static_cast<size_t>(dim)] = length;
  const at::Tensor weight =
      (at::arange(length, tile.options().dtype(at::kFloat)) / static_cast<double>(length)).view(shape);
  at::Tensor edge = tile.narrow(dim, 0, length);
  edge.copy_(at::lerp(strip.narrow(dim, strip.size(dim) - length, length).to(at::kFloat), edge.to(at::kFloat), weight));
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

at::Tensor decode_tiles(const TilePlan& plan, const at::Tensor& latents, const TileDecoder& decode) {
  const int64_t height = latents.size(3), width = latents.size(4);
  const int64_t row_overlap = (plan.height.size - plan.height.stride) * plan.scale;
  const int64_t column_overlap = (plan.width.size - plan.width.stride) * plan.scale;
  std::vector<at::Tensor> above(static_cast<size_t>(plan.width.count(width)));  // bottom strips of the row above
  at::Tensor video;
  for (int64_t top = 0; top < height; top += plan.height.stride) {
    at::Tensor left;  // right strip of the tile to the left
    for (int64_t start = 0; start < width; start += plan.width.stride) {
      at::Tensor tile = decode(latents.narrow(3, top, std::min(plan.height.size, height - top))
                                   .narrow(4, start, std::min(plan.width.size, width - start)));
      at::Tensor& strip_above = above[static_cast<size_t>(start / plan.width.stride)];
      if (top > 0) blend(strip_above, tile, 3);
      if (start > 0) blend(left, tile, 4);
      strip_above = last_strip(tile, 3, row_overlap);
      left = last_strip(tile, 4, column_overlap);

      if (!video.defined())
        video = at::empty({1, tile.size(1), tile.size(2), height * plan.scale, width * plan.scale}, tile.options());
      const int64_t rows = std::min(plan.height.stride * plan.scale, tile.size(3));
      const int64_t columns = std::min(plan.width.stride * plan.scale, tile.size(4));
      video.narrow(3, top * plan.scale, rows)
          .narrow(4, start * plan.scale, columns)
          .copy_(tile.narrow(3, 0, rows).narrow(4, 0, columns));
    }
  }
  return video;
}

at::Tensor decode_by_plan(const TilePlan& plan, const at::Tensor& latents, bool tiled, int64_t steps,
                          const DecodeProgress& progress, const StepDecoder& decode) {
  const int64_t height = latents.size(3), width = latents.size(4);
  tiled = tiled && plan.needed(height, width);
  const int64_t total = steps * (tiled ? plan.count(height, width) : 1);
  int64_t done = 0;
  const auto step_done = [&] {
    ++done;
    if (progress) progress(done, total);
  };
  if (!tiled) return decode(latents, step_done);
  return decode_tiles(plan, latents, [&](const at::Tensor& tile) { return decode(tile, step_done); });
}

}  // namespace sparsereel::models
