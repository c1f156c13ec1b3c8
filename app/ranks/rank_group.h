// The group over which the ranks of a video exchange tensors: NCCL's on GPUs, made while the rank does other things, or
// the sockets themselves.
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
  /// `device`: of this rank. `only_sockets`: no NCCL on GPUs either.
  RankGroup(std::shared_ptr<models::SocketGroup> control, std::string device, bool only_sockets)
      : control_(std::move(control)), device_(std::move(device)), only_sockets_(only_sockets) {}
  /// Waits for a group that is still being made; where that fails it ended with the control group.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// Called by rank 0, which tells the others: the id by which NCCL's ranks meet. Empty: there is no NCCL group, or it
  /// was begun already. Throws Error where NCCL is missing.
  std::string new_id() const;
  /// Called by all ranks with the same id: begins to make the group. Does nothing for an empty id. `passes`: of
  /// guidance, as far as they are known.
  void begin(const std::string& id, int64_t passes);
  /// Waits until the group is made. Throws Error where that failed.
  models::Group& get();
  /// From the first get() on the meter times what is exchanged; it must outlive this. Does nothing after that.
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
