// The group of ranks with a GPU each, by NCCL. Every call is enqueued on torch's current stream and returns at once;
// its tensors must stay until the stream has passed it, as with torch's own operators.
#pragma once

#include <c10/core/Device.h>

#include <map>

#include "models/parallel/nccl_communicator.h"
#include "models/parallel/nccl_library.h"
#include "models/parallel/peer_windows.h"
#include "models/parallel/socket_group.h"

namespace sparsereel::models {

/// A rank that dies would leave the others' GPUs waiting for ever: a thread watches NCCL's errors, the time, and the
/// sockets, and takes the communicator apart. What waits for the stream then goes on, with tensors that hold anything:
/// after it has waited, and before it uses what came, a caller asks check(). NVLink's multicast stays off unless
/// NCCL_NVLS_ENABLE is set.
class NcclGroup final : public Group {
 public:
  /// `control`: of the same ranks, for bad news. Called by all. Throws Error where there is no NCCL, and as all calls.
  static std::shared_ptr<NcclGroup> connect(std::shared_ptr<SocketGroup> control, c10::Device device);
  /// The same by what rank 0 got of new_id() and told the others: of the control group's sockets nothing is used, so
  /// that they may serve others meanwhile.
  static std::shared_ptr<NcclGroup> connect(std::shared_ptr<SocketGroup> control, c10::Device device,
                                            const std::string& id);
  static std::string new_id();
  /// What NCCL is to find in the environment. connect() without an id and new_id() see to it; who connects in a thread
  /// calls it before, while no other thread reads the environment.
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
  /// A group of the same colors that was made before.
  std::shared_ptr<Group> split(int64_t color) override;
  Windows* windows(int64_t bytes, at::Device device) override;
  void close_windows() override;
  /// What the first calls would spend time on, for this group and those of splits by these colors of all ranks: NCCL
  /// finds the other GPUs' memory. In a stream of its own; uses the control group's sockets no more than connect().
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
  int64_t window_bytes_ = 0;                                          // what was asked for, had or not
  std::unique_ptr<Windows> windows_;
};

}  // namespace sparsereel::models
