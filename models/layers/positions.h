// Tables of token positions: 3D sinusoids that are added to the tokens, and 3D rotary angles. All in native token
// order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "hilbert/token_order.h"

namespace sparsereel::models {

/// fp64 [grid.size(), channels] on the CPU: channels / 4 for time, then 3/8 for the column, 3/8 for the row, each part
/// sines then cosines of position / scale at frequencies 10000^(-i / n). channels must be a multiple of 16.
at::Tensor sincos_positions_3d(int64_t channels, const hilbert::Grid& grid, double spatial_scale,
                               double temporal_scale);

/// Where the three axes of a grid lie: positions [frames], [height], [width].
struct AxisPositions {
  at::Tensor t, h, w;
};

/// Frames 0, 1, ..; rows and columns spread over the crop of the base grid that a resize of the grid to it covers.
AxisPositions cropped_axis_positions(const hilbert::Grid& grid, int64_t base_height, int64_t base_width);

/// 0, 1, .. on every axis.
AxisPositions plain_axis_positions(const hilbert::Grid& grid, at::ScalarType dtype);

/// Channels of a head that each axis rotates, each a multiple of 2.
struct AxisChannels {
  int64_t t, h, w;
};

struct RotaryTable {
  at::Tensor cos, sin;  // fp32 [tokens, head_dim]; entries 2i and 2i + 1 are equal (interleaved pairs)
};

/// Rotary angles (Su et al., arXiv 2104.09864) per axis, theta 10000, computed in the positions' dtype: those of time,
/// of the row, of the column beside each other. rounded: to that, as the cosines and sines of what is rounded.
RotaryTable rotary_positions_3d(const AxisChannels& channels, const AxisPositions& positions,
                                std::optional<at::ScalarType> rounded = {});

}  // namespace sparsereel::models
