// Draws noise exactly as libtorch does on a CPU.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace sparsereel::models {

/// Returns the numbers of at::randn() for these sizes and dtype on the CPU, bit for bit, and advances `generator` (a
/// CPU's) as far. In fp16 and bf16 it is several times as fast: uniform numbers have only 2048 and 256 values there, so
/// logarithms, sines and cosines come from tables.
at::Tensor draw_noise(at::IntArrayRef sizes, at::ScalarType dtype, at::Generator& generator);

}  // namespace sparsereel::models
