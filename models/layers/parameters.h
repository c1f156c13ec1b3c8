// Each module lists its weights by calling a Visit. Loading, streaming and counting all use this list.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/files/dtype.h"

namespace sparsereel::models {

/// How the large matrix products of a module are computed.
enum class Products {
  in_dtype,  // in the run's dtype
  fp8,       // in e4m3 with a scale per row
  int8,      // in integers with a scale per row
  stored,    // in integers for weights that the file holds as int8, otherwise in the run's dtype
};

/// The format in which a module keeps its weights.
struct WeightFormat {
  at::ScalarType dtype;      // the run's dtype
  bool fp8 = false;          // parameters with Parameter::fp8 are e4m3 with a scale per row
  bool int8 = false;         // parameters with Parameter::fp8 are int8 with a scale per row
  bool stored_int8 = false;  // weights that their file holds as int8 are multiplied in integers

  WeightFormat(at::ScalarType run, bool in_fp8 = false) : dtype(run), fp8(in_fp8) {}
  WeightFormat(at::ScalarType run, Products products)
      : dtype(run),
        fp8(products == Products::fp8),
        int8(products == Products::int8),
        stored_int8(products == Products::stored) {}
};

/// The change that a LoRA makes to rows of a matrix: it adds scale * up * down, a matrix of low rank.
struct LowRank {
  at::Tensor up, down;  // [rows, rank], [rank, columns], both in fp32, fp16 or bf16
  double scale;
};

/// Packed rows: consecutive rows of a matrix, quantized as their file stores them. They lie within a tensor of bytes.
struct StoredRows {
  Dtype dtype;
  int64_t rows, columns;
  int64_t offset;                    // offset of the first row, in bytes; a multiple of 16
  std::vector<LowRank> deltas = {};  // changes by LoRAs, added to the unpacked rows
  int64_t rotation = 0;              // columns of each group that was rotated before quantizing (rotation.h); 0: none
  bool multiplies = false;           // true if products with these int8 rows are computed in integers (int8.h)
  at::Tensor column_scale{};         // fp32 [columns], multiplies columns after rotating them back; may be undefined
};

/// A tensor of a module, and how checkpoints store it.
struct Parameter {
  /// Names in the checkpoint. The tensors of several names are stacked in this order, for example q, k and v of one
  /// projection.
  std::vector<std::string> names;
  std::vector<int64_t> stored;  // shape of the checkpoint's tensor under each name
  std::vector<int64_t> shape;   // shape of the module's tensor
  bool fp32 = false;            // stays fp32 in a run of any dtype
  bool reshaped = false;        // the checkpoint may store it in another shape with as many elements
  bool fp8 = false;             // quantized to 8 bits (fp8 or int8) if the run asks for it
  /// int64 [rows], CPU: row i of the module's tensor is row row_order[i] of the stored tensor; undefined if the order
  /// is the same.
  at::Tensor row_order{};
  // Set only for a linear layer's weight: where loading writes the scales of 8-bit rows, and the layout of packed rows.
  at::Tensor* scale = nullptr;
  std::vector<StoredRows>* rows = nullptr;

  bool is_fp8(const WeightFormat& format) const { return fp8 && format.fp8; }
  bool is_int8(const WeightFormat& format) const { return fp8 && format.int8 && rows != nullptr; }
};

/// Called with each tensor that the module's configuration asks for, in a fixed order. The module's other tensors stay
/// undefined.
using Visit = std::function<void(at::Tensor&, const Parameter&)>;

/// Wraps a visit for a module that stays in fp32 in a run of any dtype.
inline Visit in_fp32(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.fp32 = true;
    visit(tensor, kept);
  };
}

/// Wraps a visit for tensors that some programs store in another shape with as many elements.
inline Visit in_any_shape(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.reshaped = true;
    visit(tensor, kept);
  };
}

/// Wraps a visit for tensors whose rows the module holds in another order than the file (Parameter::row_order).
inline Visit in_row_order(const Visit& visit, at::Tensor order) {
  return [&visit, order = std::move(order)](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.row_order = order;
    visit(tensor, kept);
  };
}

/// Wraps a visit for linear layers whose products take most of a module's time. If the run asks for 8-bit weights,
/// these layers get them: fp8 or int8. Layers whose number of inputs or of outputs is no multiple of 16 keep the run's
/// dtype, because the GPU's kernels do not accept them.
inline Visit in_fp8(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.fp8 = parameter.scale != nullptr && parameter.shape[0] % 16 == 0 && parameter.shape[1] % 16 == 0;
    visit(tensor, kept);
  };
}

/// Returns a parameter that the checkpoint stores in the module's own shape.
inline Parameter parameter(std::string name, const std::vector<int64_t>& shape, bool fp32 = false) {
  return {.names = {std::move(name)}, .stored = shape, .shape = shape, .fp32 = fp32};
}

}  // namespace sparsereel::models
