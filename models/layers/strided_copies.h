// Copies strided tensors: many at once, or concurrently with other work.
#pragma once

#include <c10/core/Stream.h>

#include <optional>
#include <span>

#include "models/layers/strided_copy.h"

namespace sparsereel::models {

/// Copies all tensors, on a GPU in one launch if copy_on_cuda() accepts them. In one launch, copies over a link to
/// another GPU run at the same time as copies within the GPU's memory. No copy may write what another one reads or
/// writes.
void copy_all(std::span<const StridedCopy> copies);

/// Runs copies on one device concurrently with the current stream, using a GPU's copy engines. On a CPU, begin() itself
/// copies.
class CopiesBeside {
 public:
  explicit CopiesBeside(at::Device device) : device_(device) {}
  ~CopiesBeside();
  CopiesBeside(const CopiesBeside&) = delete;
  CopiesBeside& operator=(const CopiesBeside&) = delete;
  /// Starts copies after the current stream's work so far. The caller must keep the tensors until join() returns.
  void begin(std::span<const StridedCopy> copies);
  /// Makes later work of the current stream wait for all copies that were begun. The destructor does the same.
  void join();

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // set by begin()
};

}  // namespace sparsereel::models
