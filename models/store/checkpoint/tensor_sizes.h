// Derives sizes from the shapes of a file's tensors, for Part::sizes_by_tensors. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// Returns the highest number that follows `prefix` in a tensor's name, plus one; 0 if no name has one.
int64_t count_blocks(const TensorTable& tensors, std::string_view prefix);

/// Collects sizes of a component from the axes of its tensors. Each function below records one size under `name`.
class TensorSizes {
 public:
  explicit TensorSizes(const TensorTable& tensors) : tensors_(tensors) {}

  /// Records the size of `axis` of a tensor. Does nothing if the tensor is missing, or if it does not have `axes` axes.
  void add(const char* name, const std::string& tensor, size_t axis, size_t axes);
  /// Does the same, but records 0 if the tensor is missing and other sizes were found.
  void add_or_none(const char* name, const std::string& tensor, size_t axis, size_t axes);
  /// Records count_blocks(). Does nothing if no other sizes were found.
  void add_blocks(const char* name, std::string_view prefix);
  const Sizes& found() const { return sizes_; }

 private:
  const TensorTable& tensors_;
  Sizes sizes_;
};

}  // namespace sparsereel::models
