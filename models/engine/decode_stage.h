// Decodes latents to frames, on one rank or on several. Each of several ranks decodes a band of the frames' rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>

#include "models/parallel/group.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

struct Decoder {
  Vae& vae;
  std::array<int64_t, 2> pixels;  // height and width of one latent, in pixels
  at::Device device;
  /// true: decoding in tiles is possible and takes less memory; false: the VAE always works in tiles of one size.
  bool has_tiles = true;
};

/// Tells the observer that rank 0 works alone from here on and the other ranks are no longer needed.
void release_others(const Run& run);

// The next two functions take latents [1, C, F, H, W] on the decoder's device, in the VAE's dtype. They hand frames to
// the frame sink of `run`, report progress to its observer, and poll its cancellation.

/// Decodes on this rank, in tiles if `tiled`. If GPU memory runs out, retries once, as work_or_retry_tiled() does (with
/// `may_tile` and `make_room`), or as work_or_retry() does if the decoder has no tiles.
Decoded decode_alone(const Decoder& decoder, const at::Tensor& latents, bool tiled, bool may_tile, const Run& run,
                     const std::function<bool()>& make_room);

/// Decodes on all ranks of a group. Rank 0 gets the frames. The group must not have more ranks than the latents have
/// rows. A rank that runs out of memory throws, because the others cannot decode its rows; the other ranks wait until
/// the group is aborted.
Decoded decode_together(const Decoder& decoder, const at::Tensor& latents, const Run& run, Group& decoders);

}  // namespace sparsereel::models
