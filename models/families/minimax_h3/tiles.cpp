// Places tiles, and joins the results of tiles, one row of tiles at a time.
#include "models/families/minimax_h3/tiles.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sparsereel::models {
namespace {

constexpr int64_t kTilePixels = 256, kLeastOverlap = 64;  // fixed by the reference; not in config.json

/// Returns the tiles of one row of tiles, [tiles, C, F, h, w].
at::Tensor tiles_of_row(const TileWork& work, size_t row) {
  const at::Tensor band = work.whole.narrow(3, work.rows.starts[row] * work.in, work.rows.size * work.in);
  std::vector<at::Tensor> tiles;
  for (const int64_t start : work.columns.starts)
    tiles.push_back(band.narrow(4, start * work.in, work.columns.size * work.in));
  return at::cat(tiles);
}

}  // namespace

FixedTiles fixed_tiles(int64_t length, int64_t pixels_a_latent) {
  const int64_t pixels = length * pixels_a_latent;
  if (pixels <= kTilePixels) return {.size = length, .starts = {0}};
  int64_t count = (pixels + kTilePixels - 1) / kTilePixels;
  const auto slack = [&] { return kTilePixels * count - kLeastOverlap * (count - 1) - pixels; };
  while (slack() < 0) ++count;
  std::vector<int64_t> overlaps(static_cast<size_t>(count - 1), kLeastOverlap);
  for (int64_t i = 0; i < slack() / pixels_a_latent; ++i)
    overlaps[static_cast<size_t>(i % (count - 1))] += pixels_a_latent;
  FixedTiles tiles = {.size = kTilePixels / pixels_a_latent, .starts = {0}};
  for (const int64_t overlap : overlaps)
    tiles.starts.push_back(tiles.starts.back() + tiles.size - overlap / pixels_a_latent);
  return tiles;
}

at::Tensor cross_faded(const at::Tensor& from, const at::Tensor& to, int64_t dim) {
  std::vector<int64_t> shape(static_cast<size_t>(to.dim()), 1);
  shape[static_cast<size_t>(dim)] = to.size(dim);
  const at::Tensor weight = at::arange(to.size(dim), to.options()) / static_cast<double>(to.size(dim));
  return at::lerp(from, to, weight.view(shape));
}

at::Tensor run_in_tiles(const TileWork& work) {
  const size_t rows = work.rows.starts.size(), columns = work.columns.starts.size();
  const int64_t scale = work.out;
  at::Tensor result, above;  // `above`: results of the row of tiles above, before blending
  for (size_t row = 0; row < rows; ++row) {
    const at::Tensor raw = work.run(tiles_of_row(work, row));
    if (!result.defined())
      result = at::empty(
          {1, raw.size(1), raw.size(2), work.whole.size(3) / work.in * scale, work.whole.size(4) / work.in * scale},
          raw.options());
    at::Tensor blended = raw.clone();
    if (const int64_t shared = work.rows.overlap(row) * scale; shared > 0)
      blended.narrow(3, 0, shared)
          .copy_(cross_faded(above.narrow(3, above.size(3) - shared, shared), raw.narrow(3, 0, shared), 3));
    for (size_t column = 0; column < columns; ++column) {
      const at::Tensor tile = blended.narrow(0, static_cast<int64_t>(column), 1);
      if (const int64_t shared = work.columns.overlap(column) * scale; shared > 0) {
        const at::Tensor left = raw.narrow(0, static_cast<int64_t>(column) - 1, 1);
        tile.narrow(4, 0, shared)
            .copy_(cross_faded(left.narrow(4, left.size(4) - shared, shared), tile.narrow(4, 0, shared), 4));
      }
      // Tiles that come later overwrite the part that overlaps with this one.
      result.narrow(3, work.rows.starts[row] * scale, tile.size(3))
          .narrow(4, work.columns.starts[column] * scale, tile.size(4))
          .copy_(tile);
    }
    above = raw;
  }
  return result;
}

}  // namespace sparsereel::models
