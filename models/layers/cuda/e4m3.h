// Constants for quantizing a row to e4m3, on a CPU and in CUDA kernels. No torch.
#pragma once

namespace sparsereel::models {

constexpr float kE4m3Most = 448;  // the largest e4m3 number
/// Lower bound for the largest absolute value of a row, so that no scale is zero.
constexpr float kLeastE4m3Row = 0x1p-100F;

}  // namespace sparsereel::models
