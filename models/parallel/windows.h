// One-sided access like MPI's windows: memory of each rank that all ranks of a group can write to.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace sparsereel::models {

class Windows {
 public:
  virtual ~Windows() = default;
  /// Returns the rank's window, uint8 [bytes], aligned to 16 bytes. Other ranks' windows may only be written.
  virtual at::Tensor of(int64_t rank) const = 0;
  /// Runs put(), which may write to all windows. All ranks call this. Later work of the stream finds in this rank's
  /// window what all ranks have written in put(). It also finds what they wrote earlier in streams that waited for the
  /// last exchange(). The data stays valid until this rank's next exchange(). Consecutive exchanges must write disjoint
  /// regions, because peers may still be reading the previous one. Throws as the group's calls do.
  virtual void exchange(const std::function<void()>& put) = 0;
  /// Releases the windows. All ranks call this before they destroy the windows. Otherwise, for example after a rank's
  /// failure, memory may stay allocated.
  virtual void close() {}
};

}  // namespace sparsereel::models
