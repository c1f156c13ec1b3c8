// Tables of token positions in native token order: 3D sinusoids that are added to the tokens, and 3D rotary angles.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "hilbert/token_order.h"

namespace sparsereel::models {

/// Returns fp64 [grid.size(), channels] on the CPU: channels / 4 for time, then 3/8 for the column, 3/8 for the row.
/// Each part has sines, then cosines of position / scale at frequencies 10000^(-i / n). channels must be a multiple of
/// 16.
at::Tensor sincos_positions_3d(int64_t channels, const hilbert::Grid& grid, double spatial_scale,
                               double temporal_scale);

/// Positions along the three axes of a grid: [frames], [height], [width].
struct AxisPositions {
  at::Tensor t, h, w;
};

/// Returns positions for resized grids. Frames are 0, 1, ... Rows and columns are spread over the crop of the base grid
/// that the grid covers when resized to it.
AxisPositions cropped_axis_positions(const hilbert::Grid& grid, int64_t base_height, int64_t base_width);

/// Returns positions 0, 1, ... on every axis.
AxisPositions plain_axis_positions(const hilbert::Grid& grid, at::ScalarType dtype);

/// Channels of a head that each axis rotates, each a multiple of 2.
struct AxisChannels {
  int64_t t, h, w;
};

struct RotaryTable {
  at::Tensor cos, sin;  // fp32 [tokens, head_dim]; entries 2i and 2i + 1 are equal (interleaved pairs)
};

/// Returns rotary angles (Su et al., arXiv 2104.09864) per axis, theta 10000, in the positions' dtype: time, row and
/// column beside each other. If `rounded` is given, the angles are rounded to this dtype, and their cosines and sines
/// are computed in it.
RotaryTable rotary_positions_3d(const AxisChannels& channels, const AxisPositions& positions,
                                std::optional<at::ScalarType> rounded = {});

}  // namespace sparsereel::models
