// A group of ranks with one GPU each, by NCCL. Every call is enqueued on torch's current stream and returns at once.
// The tensors of a call must live until the stream has executed it, as with torch's own operators.
#pragma once

#include <c10/core/Device.h>

#include <map>

#include "models/parallel/nccl_communicator.h"
#include "models/parallel/nccl_library.h"
#include "models/parallel/peer_windows.h"
#include "models/parallel/socket_group.h"

namespace sparsereel::models {

/// A rank that dies would leave the other GPUs waiting forever. So a thread watches NCCL's errors, the time and the
/// sockets, and aborts the communicator if necessary. The stream then goes on with arbitrary data: a caller must call
/// check() after waiting for the stream and before using what it received. NVLink's multicast stays off unless
/// NCCL_NVLS_ENABLE is set.
class NcclGroup final : public Group {
 public:
  /// Connects the ranks. `control` is the control group of the same ranks, for reports of failures. All ranks call
  /// this. Throws Error if NCCL is missing, or as all calls do.
  static std::shared_ptr<NcclGroup> connect(std::shared_ptr<SocketGroup> control, c10::Device device);
  /// Connects with the result of rank 0's new_id(), which the caller has sent to all ranks. Does not use the control
  /// group's sockets, so other calls may use them meanwhile.
  static std::shared_ptr<NcclGroup> connect(std::shared_ptr<SocketGroup> control, c10::Device device,
                                            const std::string& id);
  static std::string new_id();
  /// Sets NCCL's environment variables. new_id() and connect() without an id call this. A program that connects in a
  /// thread must call it first, while no other thread reads the environment.
  static void set_environment();
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int64_t rank() const override { return control_->rank(); }
  int64_t size() const override { return control_->size(); }
  void all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) override;
  void all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) override;
  void all_reduce_sum(const at::Tensor& tensor) override;
  void all_reduce_max(const at::Tensor& tensor) override;
  void broadcast(const at::Tensor& tensor, int64_t root) override;
  /// Splits the group. Reuses the group of an earlier split with the same colors.
  std::shared_ptr<Group> split(int64_t color) override;
  Windows* windows(int64_t bytes, at::Device device) override;
  void close_windows() override;
  /// Makes NCCL map the other GPUs' memory now; otherwise the first calls would spend time on it. Prepares this group
  /// and the groups that split() makes by each entry of `splits`, which holds the colors of all ranks. Runs in a
  /// separate stream. Does not use the control group's sockets.
  void prepare(const std::vector<std::vector<int64_t>>& splits);
  void abort(const std::string& reason) noexcept override;
  void check() const override { control_->check(); }

 private:
  NcclGroup(std::shared_ptr<SocketGroup> control, c10::Device device, std::unique_ptr<NcclCommunicator> communicator);
  std::shared_ptr<NcclGroup> part(const std::vector<int64_t>& colors);
  void prepare_calls();
  void check_tensors(std::span<const at::Tensor> tensors) const;
  void all_reduce(const at::Tensor& tensor, nccl::Operation operation);

  std::shared_ptr<SocketGroup> control_;
  c10::Device device_;
  std::unique_ptr<NcclCommunicator> communicator_;
  std::map<std::vector<int64_t>, std::shared_ptr<NcclGroup>> parts_;  // by the colors of all ranks
  int64_t window_bytes_ = 0;  // the number of bytes last asked for, even if there are no windows
  std::unique_ptr<Windows> windows_;
};

}  // namespace sparsereel::models
