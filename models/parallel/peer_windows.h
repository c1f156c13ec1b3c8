// Windows of ranks with one GPU each on one host. Kernels write directly to the other GPUs' memory, over NVLink or
// PCIe.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "models/parallel/cuda/peer_memory.h"
#include "models/parallel/socket_group.h"
#include "models/parallel/windows.h"

namespace sparsereel::models {

/// Windows that ranks write to directly. Ranks must be separate processes of one host: within one process, allocating
/// or freeing memory waits for all GPUs that can reach that memory. One of these GPUs may itself wait for the
/// allocating rank, so ranks would deadlock.
class PeerWindows final : public Windows {
 public:
  /// Creates a window of `bytes` on each rank. All ranks call this. Returns null on all ranks if any rank lacks memory
  /// or cannot reach the memory of another. `ended` is int32 [1] in page-locked memory. Once it is not 0, GPUs that
  /// wait for others go on, with arbitrary data. `waited` is called after each such wait is enqueued.
  static std::unique_ptr<PeerWindows> make(SocketGroup& control, c10::Device device, int64_t bytes, at::Tensor ended,
                                           std::function<void()> waited);
  ~PeerWindows() override;
  PeerWindows(const PeerWindows&) = delete;
  PeerWindows& operator=(const PeerWindows&) = delete;

  at::Tensor of(int64_t rank) const override;
  void exchange(const std::function<void()>& put) override;
  void close() override;
  /// Computes Group's all_reduce_sum() in one launch, for at most kMaxAdded int64 numbers. For other tensors, does
  /// nothing and returns false.
  bool add_up(const at::Tensor& numbers);

 private:
  struct Offer;
  struct Peer {
    std::byte* memory = nullptr;
    bool opened = false;  // true if the memory belongs to another process
  };
  PeerWindows(SocketGroup& control, c10::Device device, int64_t bytes, at::Tensor ended, std::function<void()> waited);
  Offer offer();
  bool reach(const std::vector<Offer>& offers);
  void leave_others();
  int64_t bytes_of_slots() const;
  int64_t all_bytes() const;
  cuda::Meeting next_round();

  SocketGroup& control_;
  c10::Device device_;
  int64_t bytes_;
  at::Tensor ended_;
  std::function<void()> waited_;
  bool are_others_gone_ = false;
  std::vector<Peer> peers_;  // by rank, this rank included
  uint32_t round_ = 0, additions_ = 0;
};

}  // namespace sparsereel::models
