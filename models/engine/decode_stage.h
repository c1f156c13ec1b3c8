// Decodes latents to frames: by one rank, or by several ranks with a band of rows each.
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
  std::array<int64_t, 2> pixels;  // height and width of a latent, in pixels
  at::Device device;
  bool has_tiles = true;  // decoding in tiles takes less memory; false: the VAE always works in tiles of one size
};

/// Tells the observer that the other ranks are not needed any more and rank 0 works alone from here on.
void release_others(const Run& run);

// For both functions, latents are [1, C, F, H, W] on the decoder's device, in its dtype. They use the frame sink, the
// observer of progress, and the cancellation of `run`.

/// Decodes on this rank. Handles lack of GPU memory with work_or_retry_tiled(), or without tiles with work_or_retry().
Decoded decode_alone(const Decoder& decoder, const at::Tensor& latents, bool tiled, bool may_tile, const Run& run,
                     const std::function<bool()>& make_room);

/// Decodes on all ranks of a group. Rank 0 gets the frames. The group must not have more ranks than the latents have
/// rows. A rank that runs out of memory throws, because the others cannot decode its rows; the other ranks wait until
/// the group is aborted.
Decoded decode_together(const Decoder& decoder, const at::Tensor& latents, const Run& run, Group& decoders);

}  // namespace sparsereel::models
