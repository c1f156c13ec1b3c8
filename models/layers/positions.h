// Tables of token positions: 3D sinusoids that are added to the tokens, and 3D rotary angles. Tokens are in the order
// frame, row, column.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "hilbert/token_order.h"

namespace sparsereel::models {

/// Returns fp64 [grid.size(), channels] on the CPU. The first quarter of the channels is for the token's frame, then
/// 3/8 for its column, then 3/8 for its row. A part of 2n channels has n sines, then n cosines, of position / scale *
/// 10000^(-i / n) for i = 0 .. n - 1. channels must be a multiple of 16.
at::Tensor sincos_positions_3d(int64_t channels, const hilbert::Grid& grid, double spatial_scale,
                               double temporal_scale);

/// Positions along the three axes of a grid: [frames], [height], [width].
struct AxisPositions {
  at::Tensor t, h, w;
};

/// Returns positions for a grid of another size than the base grid, for which the model was trained. Frames are 0, 1,
/// .. Rows and columns are spread evenly over the center crop of the base grid that has the grid's aspect ratio.
AxisPositions cropped_axis_positions(const hilbert::Grid& grid, int64_t base_height, int64_t base_width);

/// Returns positions 0, 1, ... on every axis.
AxisPositions plain_axis_positions(const hilbert::Grid& grid, at::ScalarType dtype);

/// How many channels of a head each axis rotates; each number is even.
struct AxisChannels {
  int64_t t, h, w;
};

struct RotaryTable {
  at::Tensor cos, sin;  // fp32 [tokens, head_dim]; entries 2i and 2i + 1 are equal (interleaved pairs)
};

/// Returns rotary tables (Su et al., arXiv 2104.09864) with theta 10000. The head's channels are split among time, row
/// and column, in this order. Angles are computed in the positions' dtype. If `rounded` is given, the angles are
/// rounded to this dtype, and their cosines and sines are computed in it.
RotaryTable rotary_positions_3d(const AxisChannels& channels, const AxisPositions& positions,
                                std::optional<at::ScalarType> rounded = {});

}  // namespace sparsereel::models
