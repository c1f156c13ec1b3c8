// Plans how a parameter of a module is loaded. Needs only the files' headers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/weights/tensor_source.h"

namespace sparsereel::models {

/// The form in which a parameter is kept in memory.
enum class LoadForm {
  numbers,  // in LoadPlan::dtype, after 8-bit numbers were scaled and all weight deltas were added
  // e4m3 with one scale per row. The parameter is first made as with `numbers`, in fp32, and then quantized.
  quantized,
  e4m3,  // e4m3 numbers and scales as the file has them
  // int8 with one scale per row. The parameter is first made as with `numbers`, in fp32, and then quantized.
  int8,
  // The bytes of packed rows as the file has them (StoredRows). Scales and low-rank deltas are kept in other tensors.
  packed,
};

/// A stored tensor that becomes a parameter, or a part of a stacked parameter.
struct StoredPart {
  std::string name;
  std::optional<StoredTensor> stored = {};           // nullopt if it is missing
  std::string complaint = {};                        // why the tensor does not fit the parameter; empty if it fits
  const std::vector<WeightDelta>* deltas = nullptr;  // changes to add; never null after find_part(), often empty

  bool fits() const { return complaint.empty(); }
};

struct LoadPlan {
  LoadForm form = LoadForm::numbers;
  at::ScalarType dtype = at::kFloat;   // only for LoadForm::numbers
  std::vector<StoredPart> parts = {};  // one for each of the parameter's names
  std::vector<StoredRows> rows = {};   // for LoadForm::packed and int8: the places of the parts' rows in memory
  uint64_t bytes = 0;                  // bytes of the loaded parameter, with scales and deltas
  // True if the file holds packed or 8-bit numbers, and loading quantizes them again.
  bool rounds_again = false;

  /// Returns false if a part is missing or does not fit. Then the parameter becomes a placeholder (is_stand_in()).
  bool fits() const;
};

/// Finds the stored tensor of this name, and checks that it fits the parameter.
StoredPart find_part(const TensorSource& source, const Component& component, const std::string& name,
                     const Parameter& parameter);

/// Plans the loading of a parameter. If the format asks for products in fp8: e4m3 tensors without deltas are used as
/// stored. Tensors of other 8-bit or 4-bit numbers with scales of rows stay as they are, and are multiplied in the
/// run's dtype. All other tensors are quantized to e4m3, such as tensors in 16 bits or more, tensors with scales in
/// their blocks, and e4m3 tensors with deltas. If the format asks for products in integers: int8 tensors are used as
/// stored, with low-rank deltas applied in addition. Other tensors are quantized to int8.
LoadPlan plan_load(const TensorSource& source, const Component& component, const Parameter& parameter,
                   const WeightFormat& format);

/// Returns the offset in bytes at which the next packed rows begin in memory. It is a multiple of 16.
int64_t end_of(const StoredRows& rows);

/// Returns true for dtypes whose rows may have scales in another tensor.
bool has_scale(Dtype dtype);

/// Returns the dtype in which a weight delta is kept beside packed rows: the dtype in its file if matrix products
/// accept it, or else fp32.
at::ScalarType kept_dtype(const WeightDelta& delta);

/// Formats a shape: "[16, 4]".
std::string text_of(const std::vector<int64_t>& shape);

}  // namespace sparsereel::models
