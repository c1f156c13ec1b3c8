// The list of a module's weights. Loading, streaming and counting all use this one list.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/files/dtype.h"

namespace sparsereel::models {

/// The format in which a module keeps its weights.
struct WeightFormat {
  at::ScalarType dtype;  // the run's
  bool fp8 = false;      // parameters with Parameter::fp8 are e4m3 with a scale per row

  WeightFormat(at::ScalarType run, bool in_fp8 = false) : dtype(run), fp8(in_fp8) {}
};

/// The term that a LoRA adds to rows of a matrix: scale * up down.
struct LowRank {
  at::Tensor up, down;  // [rows, rank], [rank, columns], both in fp32, fp16 or bf16
  double scale;
};

/// Rows of a matrix as stored in a file, within a tensor of bytes.
struct StoredRows {
  Dtype dtype;
  int64_t rows, columns;
  int64_t offset;                    // of the first row, in bytes; a multiple of 16
  std::vector<LowRank> deltas = {};  // to add to the unpacked rows
};

/// One tensor of a module, as a checkpoint holds it.
struct Parameter {
  std::vector<std::string> names;  // several are stacked in the tensor: q, k and v of one projection
  std::vector<int64_t> stored;     // the shape under each name
  std::vector<int64_t> shape;      // of the tensor
  bool fp32 = false;               // fp32 in a run of any dtype
  bool reshaped = false;           // may be stored in another shape with the same elements
  bool fp8 = false;                // in 8 bits if the run asks for it
  /// int64 [rows], CPU: row i of the tensor is row row_order[i] of the stored one; undefined if the order is equal.
  at::Tensor row_order{};
  // Only a linear layer's weight has these: places for its scales, and for the layout of rows that stay as stored
  // bytes.
  at::Tensor* scale = nullptr;
  std::vector<StoredRows>* rows = nullptr;

  bool is_fp8(const WeightFormat& format) const { return fp8 && format.fp8; }
};

/// Called with each tensor that the configuration asks for, in a fixed order. Other tensors stay undefined.
using Visit = std::function<void(at::Tensor&, const Parameter&)>;

/// Wraps a visit for a module that stays in fp32 in a run of any dtype.
inline Visit in_fp32(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.fp32 = true;
    visit(tensor, kept);
  };
}

/// Wraps a visit for tensors that some programs store in another shape with the same elements.
inline Visit in_any_shape(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.reshaped = true;
    visit(tensor, kept);
  };
}

/// Wraps a visit for tensors whose rows the module has in another order (Parameter::row_order).
inline Visit in_row_order(const Visit& visit, at::Tensor order) {
  return [&visit, order = std::move(order)](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.row_order = order;
    visit(tensor, kept);
  };
}

/// Wraps a visit for linear layers whose products take most of a module's time. Their weights are in 8 bits if the run
/// asks for it and inputs and outputs are multiples of 16, as the GPU's kernels need.
inline Visit in_fp8(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.fp8 = parameter.scale != nullptr && parameter.shape[0] % 16 == 0 && parameter.shape[1] % 16 == 0;
    visit(tensor, kept);
  };
}

/// Returns a parameter that is stored in the module's own shape.
inline Parameter parameter(std::string name, const std::vector<int64_t>& shape, bool fp32 = false) {
  return {.names = {std::move(name)}, .stored = shape, .shape = shape, .fp32 = fp32};
}

}  // namespace sparsereel::models
