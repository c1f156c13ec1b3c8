// Reads what LoRAs add to a component's weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/weights/tensor_source.h"
#include "models/store/weights/upload.h"

namespace sparsereel::models {

bool holds_numbers(const at::Tensor& tensor);

/// Adds a delta of in_fp32() to rows of the weight, fp32 [.., columns], from this one on.
void add_delta(const LowRank& delta, at::Tensor& rows, int64_t first);

class DeltaReader {
 public:
  /// `component` must outlive this.
  DeltaReader(const Component& component, at::Device device)
      : component_(component), device_(device), uploader_(device) {}

  /// In fp32 on the device; `down` is undefined where `up` is the difference itself.
  std::vector<LowRank> in_fp32(const std::vector<WeightDelta>& deltas);
  /// One that stays beside packed rows until their product, of a run in this dtype.
  LowRank beside_packed(const WeightDelta& delta, at::ScalarType run);
  /// Throws Error of the deltas that make a good weight NaN or Inf in this dtype: one that holds such numbers itself,
  /// else the one of the largest scale.
  [[noreturn]] void blame(const StoredTensor& stored, const std::vector<WeightDelta>& deltas, at::ScalarType dtype);

 private:
  at::Tensor read(const WeightDelta& delta, const TensorEntry* entry, at::ScalarType dtype);

  const Component& component_;
  at::Device device_;
  Uploader uploader_;
};

}  // namespace sparsereel::models
