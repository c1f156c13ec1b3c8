// The group over which the ranks of a video exchange tensors. On GPUs, the group uses NCCL and is made in the
// background. On CPUs, it is the group of sockets.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>

#include "models/parallel/metered_group.h"
#include "models/parallel/socket_group.h"

namespace sparsereel::app {

class RankGroup {
 public:
  /// `device` is the device of this rank. With `only_sockets`, the group does not use NCCL, not even on GPUs.
  RankGroup(std::shared_ptr<models::SocketGroup> control, std::string device, bool only_sockets)
      : control_(std::move(control)), device_(std::move(device)), only_sockets_(only_sockets) {}
  /// Waits for a group that is still being made. If making it failed, the control group has ended too.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// Returns the id by which NCCL's ranks meet. Rank 0 calls this and sends the id to the others. Empty if the ranks do
  /// not use NCCL, or if begin() was already called with an id. Throws Error if NCCL is missing.
  std::string new_id() const;
  /// Begins to make the group; does nothing for an empty id. All ranks call it with the same id. `passes` is the
  /// expected number of guidance passes, for which the group is split in advance.
  void begin(const std::string& id, int64_t passes);
  /// Waits until the group is made. Throws Error if that failed.
  models::Group& get();
  /// Times the exchanges with the meter, which must outlive this object. Call it before the first get(); later calls do
  /// nothing.
  void observe(models::ExchangeMeter& meter) { meter_ = &meter; }

 private:
  std::shared_ptr<models::SocketGroup> control_;
  std::string device_;
  bool only_sockets_;
  std::shared_future<std::shared_ptr<models::Group>> begun_;
  std::shared_ptr<models::Group> group_;
  models::ExchangeMeter* meter_ = nullptr;
};

}  // namespace sparsereel::app
