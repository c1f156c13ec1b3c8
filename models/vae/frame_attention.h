// Attention between the pixels of each frame, by one head as wide as the activations, of which some decoders
// have one at the latents' size.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

class RowSplit;

/// qkv [F, H, W, 3 C], queries, keys and values beside each other -> [F, H, W, C]. rows: of whose pictures the frames
/// are pieces, all of whose pixels are seen; null: of none.
at::Tensor attend_within_frames(const at::Tensor& qkv, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
