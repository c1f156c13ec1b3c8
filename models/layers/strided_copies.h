// Copies of strided tensors: many at once, or concurrently with other work.
#pragma once

#include <c10/core/Stream.h>

#include <optional>
#include <span>

#include "models/layers/strided_copy.h"

namespace sparsereel::models {

/// Copies all tensors, in one launch on a GPU if they consist of runs of 16 bytes. Copies over a link to another GPU
/// then overlap those within the GPU's memory. No copy may write what another one reads or writes.
void copy_all(std::span<const StridedCopy> copies);

/// Runs copies on one device concurrently with the current stream, using a GPU's copy engines. On a CPU it copies at
/// once.
class CopiesBeside {
 public:
  explicit CopiesBeside(at::Device device) : device_(device) {}
  ~CopiesBeside();
  CopiesBeside(const CopiesBeside&) = delete;
  CopiesBeside& operator=(const CopiesBeside&) = delete;
  /// Starts copies after the current stream's work so far. Keep the tensors until join().
  void begin(std::span<const StridedCopy> copies);
  /// Makes later work of the current stream wait for all copies that were begun. The destructor does the same.
  void join();

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // set by begin()
};

}  // namespace sparsereel::models
