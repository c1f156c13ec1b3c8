// Reads weight deltas: the changes that LoRAs add to the weights of a component.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/weights/tensor_source.h"
#include "models/store/weights/upload.h"

namespace sparsereel::models {

/// Returns true if the tensor has no NaN and no infinity.
bool holds_numbers(const at::Tensor& tensor);

/// Adds a delta from in_fp32() to `rows`, fp32 [count, columns], in place. These are the weight's rows from row `first`
/// on.
void add_delta(const LowRank& delta, at::Tensor& rows, int64_t first);

class DeltaReader {
 public:
  /// `component` must outlive the reader.
  DeltaReader(const Component& component, at::Device device)
      : component_(component), device_(device), uploader_(device) {}

  /// Reads deltas onto the device in fp32. In the result, `down` is undefined if `up` is the whole change.
  std::vector<LowRank> in_fp32(const std::vector<WeightDelta>& deltas);
  /// Reads a delta of a weight that stays packed, for a run in the dtype `run`. The delta cannot be added to packed
  /// rows, so each product applies it in addition (StoredRows::deltas).
  LowRank beside_packed(const WeightDelta& delta, at::ScalarType run);
  /// Throws the Error for a weight that is finite, but becomes NaN or Inf in `dtype` by adding the deltas. It names a
  /// delta that holds NaN or Inf, or else the delta with the largest scale.
  [[noreturn]] void blame(const StoredTensor& stored, const std::vector<WeightDelta>& deltas, at::ScalarType dtype);

 private:
  at::Tensor read(const WeightDelta& delta, const TensorEntry* entry, at::ScalarType dtype);

  const Component& component_;
  at::Device device_;
  Uploader uploader_;
};

}  // namespace sparsereel::models
