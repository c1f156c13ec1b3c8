// Constants for quantizing a row to e4m3, on a CPU and in CUDA kernels. No torch.
#pragma once

namespace sparsereel::models {

constexpr float kE4m3Most = 448;            // the largest e4m3 number
constexpr float kLeastE4m3Row = 0x1p-100F;  // lower bound of a row's largest value, so that no scale is zero

}  // namespace sparsereel::models
