// How a module's parameter is loaded. It is decided from the files' headers, before anything is read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/weights/tensor_source.h"

namespace sparsereel::models {

/// What a parameter becomes.
enum class LoadForm {
  numbers,    // in LoadPlan::dtype; scales of stored 8-bit numbers and all deltas are in them
  quantized,  // such numbers in fp32, made e4m3 with a scale a row
  e4m3,       // e4m3 as the file has it, with the file's scales
  packed,     // the bytes that the file has, with scales and low-rank deltas beside them
};

/// A stored tensor that a parameter takes.
struct StoredPart {
  std::string name;
  std::optional<StoredTensor> stored = {};           // nothing: it is missing
  std::string complaint = {};                        // why it cannot be taken; empty: it can
  const std::vector<WeightDelta>* deltas = nullptr;  // what is added to it, often nothing

  bool fits() const { return complaint.empty(); }
};

struct LoadPlan {
  LoadForm form = LoadForm::numbers;
  at::ScalarType dtype = at::kFloat;   // of `numbers`
  std::vector<StoredPart> parts = {};  // one for each of the parameter's names
  std::vector<StoredRows> rows = {};   // of `packed`: how the parts lie in memory
  uint64_t bytes = 0;                  // that the loaded parameter takes, with scales and deltas
  bool rounds_again = false;           // makes 8 bits of what its file has packed or in 8 bits already

  /// False where a part is missing or does not fit: a placeholder stands for the parameter.
  bool fits() const;
};

/// The stored tensor of this name, and whether it fits the parameter.
StoredPart find_part(const TensorSource& source, const Component& component, const std::string& name,
                     const Parameter& parameter);

/// A product of 8 bits takes e4m3 alone: what is packed, and e4m3 that deltas change, is quantised for it.
LoadPlan plan_load(const TensorSource& source, const Component& component, const Parameter& parameter,
                   const WeightFormat& format);

/// Bytes of all rows of a packed layout: the next rows would begin there, on 16.
int64_t end_of(const StoredRows& rows);

/// Whether numbers of this type may have scales beside them: 8-bit ones.
bool has_scale(Dtype dtype);

/// The dtype in which a delta is kept beside packed rows: as its file has it, if a product takes it so.
at::ScalarType kept_dtype(const WeightDelta& delta);

/// "[16, 4]"
std::string text_of(const std::vector<int64_t>& shape);

}  // namespace sparsereel::models
