// Positions of a text's tokens in time, row and column, with pictures among them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "models/text/encoder/text_vision.h"

namespace sparsereel::models {

/// Returns fp32 [3, length] on the CPU: time, row and column of each token (Qwen2-VL's M-RoPE, arXiv 2409.12191,
/// section 2.1). For a token of text all three are equal: one more than the largest position before it. All tokens of a
/// picture have the same time; each token's row and column are counted from that time. `pictures` are in the text's
/// order and do not overlap.
at::Tensor picture_positions(int64_t length, const std::vector<TextPicture>& pictures);

/// Returns fp32 [length, frequencies]: each frequency times the position on its axis. The axes alternate (Qwen3-VL's
/// interleaved M-RoPE): section[1] frequencies, which are 1, 4, .., belong to the row, and section[2] frequencies,
/// which are 2, 5, .., to the column. All others belong to the time.
at::Tensor interleaved_angles(const at::Tensor& positions, const at::Tensor& frequencies,
                              const std::array<int64_t, 3>& section);

}  // namespace sparsereel::models
