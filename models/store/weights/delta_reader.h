// Reads weight deltas: the changes that LoRAs add to the weights of a component.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/weights/tensor_source.h"
#include "models/store/weights/upload.h"

namespace sparsereel::models {

/// Returns true if the tensor has no NaN or Inf.
bool holds_numbers(const at::Tensor& tensor);

/// Adds a delta that in_fp32() returned to `rows`: fp32 [count, columns], the rows of a weight that begin at row
/// `first`.
void add_delta(const LowRank& delta, at::Tensor& rows, int64_t first);

class DeltaReader {
 public:
  /// `component` must outlive the reader.
  DeltaReader(const Component& component, at::Device device)
      : component_(component), device_(device), uploader_(device) {}

  /// Reads deltas in fp32 onto the device. `down` is undefined if `up` is the difference itself.
  std::vector<LowRank> in_fp32(const std::vector<WeightDelta>& deltas);
  /// Reads a delta that is not added to its weight, because the weight stays packed. It is applied beside the packed
  /// rows in each product, for a run in this dtype.
  LowRank beside_packed(const WeightDelta& delta, at::ScalarType run);
  /// Throws Error about the delta that turns a finite weight into NaN or Inf in this dtype. The error names a delta
  /// that holds NaN or Inf, or else the delta with the largest scale.
  [[noreturn]] void blame(const StoredTensor& stored, const std::vector<WeightDelta>& deltas, at::ScalarType dtype);

 private:
  at::Tensor read(const WeightDelta& delta, const TensorEntry* entry, at::ScalarType dtype);

  const Component& component_;
  at::Device device_;
  Uploader uploader_;
};

}  // namespace sparsereel::models
