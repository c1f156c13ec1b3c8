// Decodes and encodes in overlapping spatial tiles, and blends the overlaps. "The reference" is diffusers' tiled
// decoding.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "models/vae/vae.h"

namespace sparsereel::models {

/// Tiles along one axis, in latent pixels. Tile i covers [i * stride, i * stride + size), cut off at the end of the
/// picture.
struct TileAxis {
  int64_t size = 0;
  int64_t stride = 0;

  int64_t count(int64_t length) const { return (length + stride - 1) / stride; }
};

/// Returns the reference's tiles. `sample` is the side in pixels of the frames for which the model was made. A tile
/// covers half of it, and shares the fraction `overlap` with its neighbor. `scale` is the number of frame pixels per
/// latent pixel. If size * (1 - overlap) is not a whole number, the reference returns a frame of the wrong size,
/// because it rounds the lengths of blending and cropping separately. Here the stride is rounded down, and the blended
/// length is the rest of the size. So results are equal wherever the reference's frame has the right size.
TileAxis tile_axis(int64_t sample, int64_t scale, double overlap);

/// Returns tiles of 256 frame pixels every 192 pixels, for any model.
TileAxis fixed_tile_axis(int64_t pixels_a_latent);

struct TilePlan {
  TileAxis height, width;
  int64_t scale = 8;  // frame pixels per latent pixel
  // Pictures up to this many latent pixels per side need no tiles. 0 stands for the size of a tile.
  int64_t whole = 0;

  bool needed(int64_t latent_height, int64_t latent_width) const {
    return latent_height > (whole > 0 ? whole : height.size) || latent_width > (whole > 0 ? whole : width.size);
  }
  int64_t count(int64_t latent_height, int64_t latent_width) const {
    return height.count(latent_height) * width.count(latent_width);
  }
};

/// Decodes one tile of latents [1, C, F, h, w] to frames [1, 3, F', scale h, scale w], or encodes one tile of frames to
/// latents.
using TileCoder = std::function<at::Tensor(const at::Tensor& tile)>;

/// Decodes latents [1, C, F, H, W] tile by tile. Returns frames [1, 3, F', scale H, scale W]. Each tile is blended
/// linearly into the tiles above and to the left.
at::Tensor decode_tiles(const TilePlan& plan, const at::Tensor& latents, const TileCoder& decode);

/// Encodes frames [1, 3, F', scale H, scale W] tile by tile. Returns latents [1, C, F, H, W].
at::Tensor encode_tiles(const TilePlan& plan, const at::Tensor& frames, const TileCoder& encode);

/// A TileCoder that also calls step_done after each of its steps.
using StepCoder = std::function<at::Tensor(const at::Tensor& tile, const std::function<void()>& step_done)>;

/// Decodes one tile, and calls `take` with the frames of each step.
using PieceDecoder = std::function<void(const at::Tensor& tile, const TakeFrames& take)>;

/// Decodes latents in one of three ways: only this rank's rows, if ranks share the picture (DecodeMode::rows); or else
/// in tiles, if `mode` asks for tiles and the picture needs them; or else as a whole. `steps` is the number of steps of
/// one call of `decode`. `progress` receives the number of finished steps, and the number of all steps.
void decode_by_plan(const TilePlan& plan, const at::Tensor& latents, const DecodeMode& mode, int64_t steps,
                    const TakeFrames& take, const VaeProgress& progress, const PieceDecoder& decode);

/// Encodes frames as a whole, or in tiles if `tiled` is true and tiles are needed. steps and progress are as above.
at::Tensor encode_by_plan(const TilePlan& plan, const at::Tensor& frames, bool tiled, int64_t steps,
                          const VaeProgress& progress, const StepCoder& encode);

}  // namespace sparsereel::models
