// The tiles in which MiniMax-H3's VAE works. The position of a token within its tile is part of the model, so tiles of
// another size would give other pictures.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace sparsereel::models {

/// The tiles along one axis, in latents.
struct FixedTiles {
  int64_t size = 0;               // length of each tile
  std::vector<int64_t> starts{};  // first latent of each tile
  /// Returns how many latents tile i shares with the tile before it; 0 for the first tile.
  int64_t overlap(size_t i) const { return i == 0 ? 0 : starts[i - 1] + size - starts[i]; }
};

/// Returns the smallest number of tiles of 256 pixels that cover `length` latents and overlap by at least 64 pixels.
/// Each tile starts at a whole latent. A shorter axis has a single tile of its own length.
FixedTiles fixed_tiles(int64_t length, int64_t pixels_a_latent);

/// Work that is done tile by tile: tiles are cut from `whole`, processed by `run`, and joined to the result.
struct TileWork {
  at::Tensor whole;  // [1, C, F, H, W]
  /// Number of elements along the edge of a latent, in `whole` (in) and in the result (out): 1, or pixels per latent.
  int64_t in = 1, out = 1;
  FixedTiles rows{}, columns{};
  /// Processes the tiles of a row of tiles, [tiles, C, F, h, w]; returns [tiles, C', F', h', w'].
  std::function<at::Tensor(const at::Tensor& tiles)> run;
};

/// Returns the joined results of all tiles, [1, C', F', H', W']. Each tile is blended linearly with the tile above it,
/// then with the tile to its left. Blending reads the results of these two before they were blended themselves, as the
/// reference does.
at::Tensor run_in_tiles(const TileWork& work);

/// Blends two tensors of equal shape linearly along `dim`: the result is `from` at the first index, and almost `to` at
/// the last.
at::Tensor cross_faded(const at::Tensor& from, const at::Tensor& to, int64_t dim);

}  // namespace sparsereel::models
