// Decides from the files' headers how a module's parameter is loaded, before any data is read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/weights/tensor_source.h"

namespace sparsereel::models {

/// The form in which a parameter is kept in memory. Packed: quantized as its file stores it (see Dtype).
enum class LoadForm {
  numbers,    // LoadPlan::dtype, after scaling stored 8-bit numbers and adding all weight deltas
  quantized,  // e4m3 with one scale per row, quantized from fp32 numbers made as above
  e4m3,       // e4m3 and scales as in the file
  int8,       // int8 rows with one scale each, quantized from fp32 numbers made as above
  packed,     // the bytes of packed rows as in the file, with their scales and low-rank deltas kept beside them
};

/// A stored tensor that a parameter is made from.
struct StoredPart {
  std::string name;
  std::optional<StoredTensor> stored = {};           // nothing if it is missing
  std::string complaint = {};                        // why it does not fit; empty if it does
  const std::vector<WeightDelta>* deltas = nullptr;  // changes to add; never null after find_part(), often empty

  bool fits() const { return complaint.empty(); }
};

struct LoadPlan {
  LoadForm form = LoadForm::numbers;
  at::ScalarType dtype = at::kFloat;   // used with `numbers`
  std::vector<StoredPart> parts = {};  // one for each of the parameter's names
  std::vector<StoredRows> rows = {};   // used with `packed`: the places of the parts' rows in memory
  uint64_t bytes = 0;                  // bytes of the loaded parameter, with scales and deltas
  bool rounds_again = false;           // the file holds packed or 8-bit numbers, which are quantized again

  /// Returns false if a part is missing or does not fit. A placeholder then replaces the parameter.
  bool fits() const;
};

/// Finds the stored tensor of this name, and checks that it fits the parameter.
StoredPart find_part(const TensorSource& source, const Component& component, const std::string& name,
                     const Parameter& parameter);

/// Plans the loading of a parameter. Matrix products in fp8 accept only e4m3. Tensors whose blocks hold their scales,
/// and e4m3 tensors with deltas, are therefore quantized again to e4m3 for these products. Tensors with other 8- or
/// 4-bit numbers and scales of rows stay as they are, and are multiplied in the run's dtype. Products in integers take
/// int8 as stored, with low-rank deltas beside it; other tensors are quantized to int8.
LoadPlan plan_load(const TensorSource& source, const Component& component, const Parameter& parameter,
                   const WeightFormat& format);

/// Returns the end of packed rows in memory, where the next rows begin: a multiple of 16 bytes.
int64_t end_of(const StoredRows& rows);

/// Returns true for dtypes whose rows may have scales in another tensor.
bool has_scale(Dtype dtype);

/// Returns the dtype in which a weight delta is kept beside packed rows: the dtype in its file if matrix products
/// accept it, or else fp32.
at::ScalarType kept_dtype(const WeightDelta& delta);

/// Formats a shape: "[16, 4]".
std::string text_of(const std::vector<int64_t>& shape);

}  // namespace sparsereel::models
