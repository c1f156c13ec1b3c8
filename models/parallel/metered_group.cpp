// Times calls by events on their stream, or by the clock.
#include "models/parallel/metered_group.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

namespace sparsereel::models {

void ExchangeMeter::time(const std::function<void()>& call) {
  if (device_.is_cpu()) {
    const auto start = std::chrono::steady_clock::now();
    call();
    milliseconds_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return;
  }
  const c10::DeviceGuard guard(device_);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  c10::Event before(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event after(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  after.record(stream);  // the first record creates the event; do that before the measured time
  before.record(stream);
  call();
  after.record(stream);
  pending_.emplace_back(std::move(before), std::move(after));
}

double ExchangeMeter::take() {
  for (auto& [before, after] : pending_) {
    after.synchronize();
    milliseconds_ += before.elapsedTime(after);
  }
  pending_.clear();
  return std::exchange(milliseconds_, 0);
}

class MeteredGroup::MeteredWindows final : public Windows {
 public:
  MeteredWindows(Windows& windows, ExchangeMeter& meter) : windows_(windows), meter_(meter) {}
  bool are_of(const Windows& windows) const { return &windows_ == &windows; }
  at::Tensor of(int64_t rank) const override { return windows_.of(rank); }
  void exchange(const std::function<void()>& put) override {
    meter_.time([&] { windows_.exchange(put); });
  }

 private:
  Windows& windows_;
  ExchangeMeter& meter_;
};

void MeteredGroup::all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) {
  meter_.time([&] { group_->all_to_all(send, receive); });
}

void MeteredGroup::all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) {
  meter_.time([&] { group_->all_gather(send, receive); });
}

void MeteredGroup::all_reduce_sum(const at::Tensor& tensor) {
  meter_.time([&] { group_->all_reduce_sum(tensor); });
}

void MeteredGroup::all_reduce_max(const at::Tensor& tensor) {
  meter_.time([&] { group_->all_reduce_max(tensor); });
}

void MeteredGroup::broadcast(const at::Tensor& tensor, int64_t root) {
  meter_.time([&] { group_->broadcast(tensor, root); });
}

Windows* MeteredGroup::windows(int64_t bytes, at::Device device) {
  Windows* windows = group_->windows(bytes, device);
  if (windows == nullptr) return nullptr;
  if (!windows_ || !windows_->are_of(*windows)) windows_ = std::make_shared<MeteredWindows>(*windows, meter_);
  return windows_.get();
}

void MeteredGroup::close_windows() {
  windows_.reset();
  group_->close_windows();
}

std::shared_ptr<Group> MeteredGroup::split(int64_t color) {
  return std::make_shared<MeteredGroup>(group_->split(color), meter_);
}

}  // namespace sparsereel::models
