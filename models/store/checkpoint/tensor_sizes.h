// What the shapes of a file's tensors tell, for Part::sizes_by_tensors. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// The highest number behind `prefix`, and one; 0 where there is none.
int64_t count_blocks(const TensorTable& tensors, std::string_view prefix);

/// The sizes of some axes of a component's tensors.
class TensorSizes {
 public:
  explicit TensorSizes(const TensorTable& tensors) : tensors_(tensors) {}

  /// Says nothing where the tensor is not there, or has another number of axes.
  void add(const char* name, const std::string& tensor, size_t axis, size_t axes);
  /// 0 where it is not there, though others were found.
  void add_or_none(const char* name, const std::string& tensor, size_t axis, size_t axes);
  /// count_blocks(). Says nothing where nothing was found.
  void add_blocks(const char* name, std::string_view prefix);
  const Sizes& found() const { return sizes_; }

 private:
  const TensorTable& tensors_;
  Sizes sizes_;
};

}  // namespace sparsereel::models
