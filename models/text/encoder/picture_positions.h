// Positions of a text's tokens in time, row and column, with pictures among them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "models/text/encoder/text_vision.h"

namespace sparsereel::models {

/// Returns fp32 [3, length] on the CPU: time, row and column of each token (Qwen2-VL's M-RoPE, arXiv 2409.12191,
/// section 2.1). The three are equal for a token of text, which follows the largest position before it. A picture's
/// tokens have one time, and add their row and column to it. `pictures` are in the text's order and do not overlap.
at::Tensor picture_positions(int64_t length, const std::vector<TextPicture>& pictures);

/// Returns fp32 [length, frequencies]: each frequency times the position on its axis. Axes take turns (Qwen3-VL's
/// interleaved M-RoPE): frequencies 1, 4, .. turn with the row, section[1] of them, and 2, 5, .. with the column,
/// section[2] of them. All others turn with the time.
at::Tensor interleaved_angles(const at::Tensor& positions, const at::Tensor& frequencies,
                              const std::array<int64_t, 3>& section);

}  // namespace sparsereel::models
