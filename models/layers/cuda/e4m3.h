// What quantising a row to e4m3 goes by, on a CPU and in CUDA kernels. No torch.
#pragma once

namespace sparsereel::models {

constexpr float kE4m3Most = 448;            // the largest number that e4m3 has
constexpr float kLeastE4m3Row = 0x1p-100F;  // a row's largest value counts as this much at least: no scale is zero

}  // namespace sparsereel::models
