// Constants for quantizing a row to int8, on a CPU and in CUDA kernels. No torch.
#pragma once

namespace sparsereel::models {

constexpr float kInt8Most = 127;           // the int8 number that a row's largest magnitude becomes
constexpr float kLeastInt8Scale = 1e-30F;  // the scale of a row of zeros; other programs use the same number

}  // namespace sparsereel::models
