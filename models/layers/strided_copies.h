// Copies of strided tensors: many at once, and beside other work.
#pragma once

#include <c10/core/Stream.h>

#include <optional>
#include <span>

#include "models/layers/strided_copy.h"

namespace sparsereel::models {

/// On a GPU one launch, of tensors that consist of runs of 16 bytes: copies that go over a link to another GPU then
/// stand beside those within the GPU's own memory. None may write what another one reads or writes.
void copy_all(std::span<const StridedCopy> copies);

/// Of one device, on a GPU by its copy engines beside what the current stream gets meanwhile; elsewhere at once.
class CopiesBeside {
 public:
  explicit CopiesBeside(at::Device device) : device_(device) {}
  ~CopiesBeside();
  CopiesBeside(const CopiesBeside&) = delete;
  CopiesBeside& operator=(const CopiesBeside&) = delete;
  /// Behind what the current stream has. The tensors stay until join().
  void begin(std::span<const StridedCopy> copies);
  /// What the current stream gets from here on is behind all that was begun, as it is from the end of this object on.
  void join();

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // once begun
};

}  // namespace sparsereel::models
