// Noise as libtorch draws it on a CPU.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace sparsereel::models {

/// at::randn() of these sizes and dtype on the CPU, to the bit, and as often drawn from `generator` (a CPU's): in fp16
/// and bf16 several times as fast, since their uniform numbers have 2048 and 256 values, whose logarithms, sines and
/// cosines are known beforehand.
at::Tensor draw_noise(at::IntArrayRef sizes, at::ScalarType dtype, at::Generator& generator);

}  // namespace sparsereel::models
