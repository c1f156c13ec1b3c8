// Draws noise exactly as libtorch does on a CPU.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace sparsereel::models {

/// Returns the same numbers as at::randn() for these sizes and dtype on the CPU, bit for bit, and advances `generator`
/// (a CPU's) equally far. For fp16 and bf16 it is several times as fast as at::randn(): a uniform number has only 2048
/// possible values in fp16, and 256 in bf16, so logarithms, sines and cosines come from tables.
at::Tensor draw_noise(at::IntArrayRef sizes, at::ScalarType dtype, at::Generator& generator);

}  // namespace sparsereel::models
