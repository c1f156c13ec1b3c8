// Measures the time that a group's calls take on one rank.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "models/parallel/group.h"

namespace sparsereel::models {

/// Measures the time that calls take on a rank: on a GPU by events before and after each call, on a CPU by the clock.
/// The time includes waiting for the slowest of the other ranks.
class ExchangeMeter {
 public:
  explicit ExchangeMeter(c10::Device device) : device_(device) {}

  /// Returns the milliseconds of all calls since the last take(). Waits for the last call.
  double take();
  void time(const std::function<void()>& call);

 private:
  c10::Device device_;
  double milliseconds_ = 0;                                 // time on a CPU
  std::vector<std::pair<c10::Event, c10::Event>> pending_;  // for a GPU: events before and after each call
};

/// Wraps a group and times its calls on this rank, and the calls of groups split from it. For exchanges of windows, it
/// also counts the copies made by `put`, but not copies started earlier. The meter must outlive this group.
class MeteredGroup final : public Group {
 public:
  MeteredGroup(std::shared_ptr<Group> group, ExchangeMeter& meter) : group_(std::move(group)), meter_(meter) {}

  int64_t rank() const override { return group_->rank(); }
  int64_t size() const override { return group_->size(); }
  void all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) override;
  void all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) override;
  void all_reduce_sum(const at::Tensor& tensor) override;
  void all_reduce_max(const at::Tensor& tensor) override;
  void broadcast(const at::Tensor& tensor, int64_t root) override;
  std::shared_ptr<Group> split(int64_t color) override;
  Windows* windows(int64_t bytes, at::Device device) override;
  void close_windows() override;
  void check() const override { group_->check(); }
  void abort(const std::string& reason) noexcept override { group_->abort(reason); }

 private:
  class MeteredWindows;
  std::shared_ptr<Group> group_;
  ExchangeMeter& meter_;
  std::shared_ptr<MeteredWindows> windows_;
};

}  // namespace sparsereel::models
