// Attention between the pixels of each frame with a single head of all channels, as some decoders have at the latents'
// size.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

class RowSplit;

/// qkv [F, H, W, 3 C], queries, keys and values side by side -> [F, H, W, C]. If the frames are bands of `rows`,
/// queries see all pixels of the whole pictures.
at::Tensor attend_within_frames(const at::Tensor& qkv, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
