// The tiles in which MiniMax-H3's VAE works. The position of a token within its tile is part of the model, so tiles of
// another size would give other pictures.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace sparsereel::models {

/// Tiles along one axis, in latents.
struct FixedTiles {
  int64_t size = 0;               // of each tile
  std::vector<int64_t> starts{};  // of each tile
  /// Returns the latents that tile i shares with the one before; 0 for the first.
  int64_t overlap(size_t i) const { return i == 0 ? 0 : starts[i - 1] + size - starts[i]; }
};

/// Returns the fewest tiles of 256 pixels that cover `length` latents and overlap by at least 64 pixels. All start at a
/// latent. A shorter axis has one tile.
FixedTiles fixed_tiles(int64_t length, int64_t pixels_a_latent);

/// The work on tiles: each is taken from `whole` and becomes a tile of the result.
struct TileWork {
  at::Tensor whole;         // [1, C, F, H, W]
  int64_t in = 1, out = 1;  // pixels of a latent, in `whole` and in the result
  FixedTiles rows{}, columns{};
  /// Works on tiles [tiles, C, F, h, w] that lie beside each other; returns [tiles, C', F', h', w'].
  std::function<at::Tensor(const at::Tensor& tiles)> run;
};

/// Returns the results of all tiles as one, [1, C', F', H', W']. A tile is blended linearly with the tile above, then
/// with the tile to its left. Blending reads the unblended results of both, as the reference does.
at::Tensor run_in_tiles(const TileWork& work);

/// Returns a ramp from `from` to `to`, both of `length` along `dim`: the first result is `from`, and the last is nearly
/// `to`.
at::Tensor cross_faded(const at::Tensor& from, const at::Tensor& to, int64_t dim);

}  // namespace sparsereel::models
