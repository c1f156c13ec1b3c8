// The ranks that make one video together, and what they tell each other. A video that one rank makes has no group.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/parallel/windows.h"

namespace sparsereel::models {

/// All ranks make the same calls in the same order. Tensors are contiguous and on the group's device, of fp32, fp16,
/// bf16, int64 or uint8, and may be empty. Where a rank failed, left, or did not come within the group's limit, a call
/// throws Error that names it, on every other rank; nothing can be exchanged after that.
class Group {
 public:
  virtual ~Group() = default;
  virtual int64_t rank() const = 0;  // 0 .. size() - 1
  virtual int64_t size() const = 0;

  /// send[i] goes to rank i, receive[i] comes from it: the sizes of both sides agree, and may differ by pair.
  virtual void all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) = 0;
  /// receive[i] becomes what rank i sends: shapes may differ by rank.
  virtual void all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) = 0;
  /// In place, the same bits on all ranks.
  virtual void all_reduce_sum(const at::Tensor& tensor) = 0;
  virtual void all_reduce_max(const at::Tensor& tensor) = 0;
  /// In place: that of rank `root`.
  virtual void broadcast(const at::Tensor& tensor, int64_t root) = 0;

  /// Groups of the ranks that gave equal colors, in the order of their ranks; called by all.
  virtual std::shared_ptr<Group> split(int64_t color) = 0;

  /// A window of at least `bytes` of each rank, the same ones until a call asks for more; null where ranks do not reach
  /// each other's memory. Called by all, with the same number, as close_windows(), until which they stay. device: the
  /// group's.
  virtual Windows* windows(int64_t bytes, at::Device device) = 0;
  virtual void close_windows() = 0;

  /// Throws Error where the group has ended. Where calls return before they are done, it is to be asked after a wait
  /// for the device and before what came is used: a call that was broken off leaves anything.
  virtual void check() const {}
  /// Ends the group for all, saying why: their calls throw Error with this rank and `reason`. Idempotent.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace sparsereel::models
