// Derives sizes from the shapes of a file's tensors, for Part::sizes_by_tensors. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// Returns the highest number that follows `prefix`, plus one; 0 if there is none.
int64_t count_blocks(const TensorTable& tensors, std::string_view prefix);

/// Collects the sizes of some axes of a component's tensors.
class TensorSizes {
 public:
  explicit TensorSizes(const TensorTable& tensors) : tensors_(tensors) {}

  /// Records the size of an axis. Records nothing if the tensor is missing or has another number of axes.
  void add(const char* name, const std::string& tensor, size_t axis, size_t axes);
  /// Records the size of an axis, or 0 if the tensor is missing and other sizes were found.
  void add_or_none(const char* name, const std::string& tensor, size_t axis, size_t axes);
  /// Records count_blocks() if other sizes were found.
  void add_blocks(const char* name, std::string_view prefix);
  const Sizes& found() const { return sizes_; }

 private:
  const TensorTable& tensors_;
  Sizes sizes_;
};

}  // namespace sparsereel::models
