// How a module lists its weights, once: what loads, streams and counts them all go by this list.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/files/dtype.h"

namespace sparsereel::models {

/// In what the weights of a module are kept.
struct WeightFormat {
  at::ScalarType dtype;  // the run's
  bool fp8 = false;      // but e4m3 with a scale a row what Parameter::fp8 says

  WeightFormat(at::ScalarType run, bool in_fp8 = false) : dtype(run), fp8(in_fp8) {}
};

/// What a LoRA adds to rows of a matrix: scale * up down.
struct LowRank {
  at::Tensor up, down;  // [rows, rank], [rank, columns], both in fp32, fp16 or bf16
  double scale;
};

/// Rows of a matrix as a file has them, in a tensor of bytes.
struct StoredRows {
  Dtype dtype;
  int64_t rows, columns;
  int64_t offset;                    // of the first one, in bytes; on 16
  std::vector<LowRank> deltas = {};  // of the unpacked rows
};

/// One tensor of a module, as a checkpoint holds it.
struct Parameter {
  std::vector<std::string> names;  // one; several lie below each other in the tensor: q, k and v of one projection
  std::vector<int64_t> stored;     // the shape under each name
  std::vector<int64_t> shape;      // the tensor's, of the same elements
  bool fp32 = false;               // in fp32 whatever the run's dtype is
  bool reshaped = false;           // may be stored in another shape of the same elements
  bool fp8 = false;                // in 8 bits where the run asks for that
  at::Tensor row_order{};          // int64 [rows], CPU: the tensor's row i is row row_order[i] of what is stored;
                                   // undefined: as they lie
  // Only a linear layer's weight has these places. Where scales of its rows go; and how its rows lie in the tensor,
  // bytes then, where it stays as the file has it.
  at::Tensor* scale = nullptr;
  std::vector<StoredRows>* rows = nullptr;

  bool is_fp8(const WeightFormat& format) const { return fp8 && format.fp8; }
};

/// Is called with each tensor that the configuration asks for, in a fixed order. The others stay undefined.
using Visit = std::function<void(at::Tensor&, const Parameter&)>;

/// The visit for a module that stays in fp32 whatever the run's dtype is.
inline Visit in_fp32(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.fp32 = true;
    visit(tensor, kept);
  };
}

/// The visit for tensors that some programs store in another shape of the same elements.
inline Visit in_any_shape(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.reshaped = true;
    visit(tensor, kept);
  };
}

/// The visit for tensors whose rows the module has in another order, Parameter::row_order.
inline Visit in_row_order(const Visit& visit, at::Tensor order) {
  return [&visit, order = std::move(order)](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.row_order = order;
    visit(tensor, kept);
  };
}

/// The visit for linear layers whose products take most of a module's time: their weights are in 8 bits where the run
/// asks for that and the GPU's kernels take them, which is in multiples of 16 inputs and outputs.
inline Visit in_fp8(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.fp8 = parameter.scale != nullptr && parameter.shape[0] % 16 == 0 && parameter.shape[1] % 16 == 0;
    visit(tensor, kept);
  };
}

/// A parameter that is stored as the module has it.
inline Parameter parameter(std::string name, const std::vector<int64_t>& shape, bool fp32 = false) {
  return {.names = {std::move(name)}, .stored = shape, .shape = shape, .fp32 = fp32};
}

}  // namespace sparsereel::models
