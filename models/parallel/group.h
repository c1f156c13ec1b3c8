// The ranks that make one video together, and their exchanges. A video made by a single rank has no group.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/parallel/windows.h"

namespace sparsereel::models {

/// A group of ranks. All ranks make the same calls in the same order. Tensors are contiguous, on the group's device,
/// and of fp32, fp16, bf16, int64 or uint8; they may be empty. If a rank fails, leaves, or does not call within the
/// group's limit, the call throws Error naming that rank on every other rank. Nothing can be exchanged after that.
class Group {
 public:
  virtual ~Group() = default;
  virtual int64_t rank() const = 0;  // from 0 to size() - 1
  virtual int64_t size() const = 0;

  /// Sends send[i] to rank i, and receives receive[i] from it. send[j] of rank i must have the size of receive[i] of
  /// rank j; sizes may differ otherwise.
  virtual void all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) = 0;
  /// Gathers each rank's `send` in receive[rank]. Shapes may differ by rank.
  virtual void all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) = 0;
  /// Replaces the tensor by the sum of all ranks' tensors. All ranks get the same bits.
  virtual void all_reduce_sum(const at::Tensor& tensor) = 0;
  virtual void all_reduce_max(const at::Tensor& tensor) = 0;
  /// Overwrites the tensor with the tensor of rank `root`.
  virtual void broadcast(const at::Tensor& tensor, int64_t root) = 0;

  /// Splits the group into groups of ranks with equal colors, ordered by rank. All ranks call this.
  virtual std::shared_ptr<Group> split(int64_t color) = 0;

  /// Returns windows (see windows.h) of at least `bytes` on each rank. Windows stay the same until a call asks for more
  /// bytes, or until close_windows(). Returns null if ranks cannot reach each other's memory. All ranks call both
  /// functions, with the same number of bytes. `device` is the device of the group's tensors.
  virtual Windows* windows(int64_t bytes, at::Device device) = 0;
  virtual void close_windows() = 0;

  /// Throws Error if the group has ended. In a group whose calls return before their work is done, call this after
  /// waiting for the device and before using received data: an aborted call leaves arbitrary data.
  virtual void check() const {}
  /// Ends the group for all ranks: their calls throw Error with this rank and `reason`. Idempotent.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace sparsereel::models
