// One-sided access, as MPI's windows have it: memory of each rank that all ranks of a group write to.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace sparsereel::models {

class Windows {
 public:
  virtual ~Windows() = default;
  /// uint8 [bytes], on 16 bytes: the rank's own where it is this one's, and otherwise to be written alone.
  virtual at::Tensor of(int64_t rank) const = 0;
  /// Called by all ranks. Runs put(), which may write to all windows; behind it, in the stream's order, this rank's
  /// window holds what all have put, and what they wrote before in streams behind the last exchange(). What was put
  /// stays until this rank's next exchange(): what an exchange puts must lie elsewhere than what the one before it has
  /// put, which others may still read. Throws as the group's calls.
  virtual void exchange(const std::function<void()>& put) = 0;
  /// Called by all ranks before they let go of them; without it, as where a rank has failed, memory may stay taken.
  virtual void close() {}
};

}  // namespace sparsereel::models
