// The values that flow between layers. They have the run's dtype (fp32, fp16 or bf16), or 8 bits with scales.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace sparsereel::models {

/// The number format of a layer's input.
struct RowFormat {
  enum Kind { run_dtype, e4m3, int8 } kind = run_dtype;
  /// Number of columns of each group that is rotated before rounding to int8 (rotation.h); 0 for no rotation.
  int64_t rotation = 0;
};

/// The input of a linear layer. 8-bit values have one scale per row.
struct Activation {
  at::Tensor values;     // [.., in]
  at::Tensor scale;      // fp32 [rows, 1] for 8-bit values, so that x = value * scale; undefined for other values
  at::ScalarType dtype;  // dtype of results computed from this input
  RowFormat format{};

  Activation(at::Tensor x) : values(std::move(x)), dtype(values.scalar_type()) {}
  Activation(at::Tensor bytes, at::Tensor scales, at::ScalarType run, RowFormat form = {.kind = RowFormat::e4m3})
      : values(std::move(bytes)), scale(std::move(scales)), dtype(run), format(form) {}

  bool is_fp8() const { return format.kind == RowFormat::e4m3; }
  bool is_int8() const { return format.kind == RowFormat::int8; }
  at::IntArrayRef sizes() const { return values.sizes(); }
};

}  // namespace sparsereel::models
