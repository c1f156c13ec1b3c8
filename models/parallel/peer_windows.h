// Windows of ranks with a GPU each on one host: kernels write to the others' memory by themselves, over NVLink or PCIe.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "models/parallel/cuda/peer_memory.h"
#include "models/parallel/socket_group.h"
#include "models/parallel/windows.h"

namespace sparsereel::models {

/// Ranks are processes of one host. In one process, memory that is allocated or freed waits for all GPUs that reach it,
/// and one of these may wait for the rank that does so.
class PeerWindows final : public Windows {
 public:
  /// Called by all ranks, which get a window of `bytes` each, or none of them does: where one cannot reach another's
  /// memory, or has too little. ended: int32 [1] in page-locked memory; once it is not 0, GPUs that wait for others go
  /// on, with windows that hold anything. waited: is called behind each such wait that was enqueued.
  static std::unique_ptr<PeerWindows> make(SocketGroup& control, c10::Device device, int64_t bytes, at::Tensor ended,
                                           std::function<void()> waited);
  /// Waits for the device.
  ~PeerWindows() override;
  PeerWindows(const PeerWindows&) = delete;
  PeerWindows& operator=(const PeerWindows&) = delete;

  at::Tensor of(int64_t rank) const override;
  void exchange(const std::function<void()>& put) override;
  void close() override;
  /// Group's all_reduce_sum() of a few whole numbers, in one launch. False, and nothing is done, of anything else.
  bool add_up(const at::Tensor& numbers);

 private:
  struct Offer;
  struct Peer {
    std::byte* memory = nullptr;
    bool opened = false;  // another process's
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
  std::vector<Peer> peers_;  // by rank, this one among them
  uint32_t round_ = 0, additions_ = 0;
};

}  // namespace sparsereel::models
