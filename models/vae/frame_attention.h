// Attention between the pixels of each frame, with a single head that has all channels. Some decoders have such a layer
// at the size of the latents.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

class RowSplit;

/// Returns the attention [F, H, W, C] of qkv [F, H, W, 3 C], which holds queries, keys and values side by side. If
/// `rows` is not null, qkv is this rank's band of rows, and its queries attend to all pixels of the whole frames.
at::Tensor attend_within_frames(const at::Tensor& qkv, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
