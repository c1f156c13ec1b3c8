// The scale of a row of int8 numbers, for the CPU and the GPU.
#pragma once

namespace sparsereel::models {

constexpr float kInt8Most = 127;           // what the largest magnitude of a row becomes
constexpr float kLeastInt8Scale = 1e-30F;  // of a row of zeros, as in other programs

}  // namespace sparsereel::models
