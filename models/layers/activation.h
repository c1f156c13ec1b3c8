// The values that flow between layers: in the run's dtype, or in 8 bits with scales.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace sparsereel::models {

/// The input of a linear layer. 8-bit values have one scale per row.
struct Activation {
  at::Tensor values;     // [.., in]
  at::Tensor scale;      // fp32 [rows, 1] if the values are e4m3, so that x = value * scale; undefined for other values
  at::ScalarType dtype;  // dtype of results computed from it

  Activation(at::Tensor x) : values(std::move(x)), dtype(values.scalar_type()) {}
  Activation(at::Tensor e4m3, at::Tensor scales, at::ScalarType run)
      : values(std::move(e4m3)), scale(std::move(scales)), dtype(run) {}

  bool is_fp8() const { return scale.defined(); }
  at::IntArrayRef sizes() const { return values.sizes(); }
};

}  // namespace sparsereel::models
