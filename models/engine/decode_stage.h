// From latents to frames: by one rank, or by several, a piece of the height each.
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
  std::array<int64_t, 2> pixels;  // of height and of width, a latent
  at::Device device;
};

/// To be said once nothing is exchanged with the group's other ranks any more, by any of them.
void go_on_alone(const Run& run);

// latents [1, C, F, H, W] on the decoder's device, in its dtype. Of the run count who takes frames, progress, and
// whether it is cancelled.

/// By this rank. make_room: as of work_or_retry_tiled(); may_tile: where the GPU's memory runs out, tiles are tried.
Decoded decode_alone(const Decoder& decoder, const at::Tensor& latents, bool tiled, bool may_tile, const Run& run,
                     const std::function<bool()>& make_room);

/// By all ranks of a group, no more than rows, the first of which has the frames. What one of them runs out of the
/// others cannot make up for: it throws, and they wait until somebody aborts the group.
Decoded decode_together(const Decoder& decoder, const at::Tensor& latents, const Run& run, Group& decoders);

}  // namespace sparsereel::models
