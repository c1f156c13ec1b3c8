// Reads the deltas that LoRAs add to a component's weights.
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

/// Adds a delta of in_fp32() to a weight's rows from `first` on, fp32 [count, columns].
void add_delta(const LowRank& delta, at::Tensor& rows, int64_t first);

class DeltaReader {
 public:
  /// `component` must outlive this.
  DeltaReader(const Component& component, at::Device device)
      : component_(component), device_(device), uploader_(device) {}

  /// Reads deltas in fp32 onto the device. `down` is undefined if `up` is the difference itself.
  std::vector<LowRank> in_fp32(const std::vector<WeightDelta>& deltas);
  /// Reads a delta that stays beside packed rows until their product, for a run in this dtype.
  LowRank beside_packed(const WeightDelta& delta, at::ScalarType run);
  /// Throws Error about the delta that makes a good weight NaN or Inf in this dtype. It names a delta with such
  /// numbers, or else the one with the largest scale.
  [[noreturn]] void blame(const StoredTensor& stored, const std::vector<WeightDelta>& deltas, at::ScalarType dtype);

 private:
  at::Tensor read(const WeightDelta& delta, const TensorEntry* entry, at::ScalarType dtype);

  const Component& component_;
  at::Device device_;
  Uploader uploader_;
};

}  // namespace sparsereel::models
