// Creates, watches and aborts a communicator of NCCL.
#include "models/parallel/nccl_communicator.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <utility>

namespace sparsereel::models {
namespace {

using nccl::Result;

constexpr std::chrono::milliseconds kLook{250};  // between two looks at a communicator
// An NCCL error is reported only after this many looks: another rank's death may be the cause, and its report may still
// be on the way.
constexpr int kLooksBeforeBlame = 8;
constexpr std::chrono::seconds kFarewell{10};  // for finishing work when a group is destroyed

}  // namespace

NcclCommunicator::NcclCommunicator(SocketGroup& control, c10::Device device)
    : library_(nccl::library()), control_(control), device_(device), event_(device.type()), latest_(device.type()) {
  const c10::DeviceGuard guard(device);  // allocating page-locked memory initializes the current GPU
  ended_ = at::zeros({1}, at::TensorOptions().dtype(at::kInt).pinned_memory(true));
  watcher_ = std::thread([this] { watch(); });
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard lock(sleep_mutex_);
    quit_ = true;
  }
  woken_.notify_all();
  watcher_.join();
  say_farewell();
}

void NcclCommunicator::begin(const Make& make) {
  const c10::DeviceGuard guard(device_);
  {
    const std::lock_guard lock(mutex_);
    require(make(library_, &communicator_), nullptr);
  }
  settle();
}

void NcclCommunicator::split_into(NcclCommunicator& part, int color, int key) {
  const c10::DeviceGuard guard(device_);
  {
    const std::scoped_lock lock(mutex_, part.mutex_);
    if (communicator_ == nullptr) throw_end();
    require(library_.split(communicator_, color, key, &part.communicator_, nullptr), communicator_);
  }
  settle();
  part.settle();
}

void NcclCommunicator::enqueue(const Calls& calls) {
  control_.check();
  const c10::DeviceGuard guard(device_);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) throw_end();
    require(library_.group_start(), communicator_);
    Result result = Result::success;
    const Add add = [&](Result each) {
      if (result == Result::success || result == Result::in_progress) result = each;
    };
    try {
      calls(library_, communicator_, static_cast<nccl::Stream>(stream.native_handle()), add);
    } catch (...) {
      library_.group_end();  // otherwise NCCL would collect this thread's next calls without starting them
      throw;
    }
    const Result end = library_.group_end();
    require(result, communicator_);
    require(end, communicator_);
  }
  settle();
  look_behind(stream);
}

void NcclCommunicator::look_behind(const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (pending_) {
    latest_.record(stream);
    is_last_ = false;
  } else {
    event_.record(stream);
    pending_.emplace(control_.limits().call);
    is_last_ = true;
  }
}

void NcclCommunicator::require(Result result, nccl::Communicator* communicator) const {
  if (result == Result::success || result == Result::in_progress) return;
  for (int look = 0; look < kLooksBeforeBlame && !control_.ended(); ++look) std::this_thread::sleep_for(kLook);
  control_.end(run_failure("NCCL: " + error_text(result, communicator),
                           "set NCCL_DEBUG=WARN for details; 'sparsereel doctor' shows GPUs and links"));
  throw_end();
}

std::string NcclCommunicator::error_text(Result result, nccl::Communicator* communicator) const {
  const char* more = library_.last_error(communicator);
  std::string text = library_.error_string(result);
  if (more != nullptr && *more != 0) text += std::string(" (") + more + ")";
  return text;
}

void NcclCommunicator::throw_end() const {
  control_.check();
  throw run_failure("the ranks' NCCL communicator was already destroyed", "run the same command again");
}

void NcclCommunicator::settle() {
  Patience patience(control_.limits().call);
  for (int64_t turn = 0;; ++turn) {
    Result state = Result::success;
    {
      const std::lock_guard lock(mutex_);
      if (communicator_ == nullptr) throw_end();
      require(library_.async_error(communicator_, &state), communicator_);
      if (state != Result::in_progress) require(state, communicator_);
      settles_ = state == Result::in_progress;
    }
    if (state == Result::success) return;
    control_.check();
    if (patience.step().count() == 0) {
      control_.abort("NCCL did not connect to the other ranks in time");
      throw_end();
    }
    if (turn > 100) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

bool NcclCommunicator::sleep() {
  std::unique_lock lock(sleep_mutex_);
  return !woken_.wait_for(lock, kLook, [this] { return quit_; });
}

bool NcclCommunicator::waits() {
  if (!pending_ || !event_.query()) return pending_.has_value();
  pending_.reset();
  if (is_last_) return false;
  std::swap(event_, latest_);
  is_last_ = true;
  if (!event_.query()) pending_.emplace(control_.limits().call);
  return pending_.has_value();
}

std::string NcclCommunicator::find_problem() {
  Result state = Result::success;
  const Result asked = library_.async_error(communicator_, &state);
  const bool fails = asked != Result::success || (state != Result::success && state != Result::in_progress);
  errors_ = fails ? errors_ + 1 : 0;
  if (errors_ > kLooksBeforeBlame) return "NCCL: " + error_text(state, communicator_);
  const bool waiting = waits();
  if (waiting && pending_->step().count() == 0) return "an exchange between the ranks did not end in time";
  left_ = (waiting || settles_) && control_.who_left() ? left_ + 1 : 0;
  return {};
}

void NcclCommunicator::look() {
  std::unique_lock lock(mutex_, std::defer_lock);
  // A call may hold the mutex forever: it waits for room in the GPU's queue, behind work that waits for a dead rank.
  if (!lock.try_lock_for(kLook) && (!control_.ended() || ++blocked_ < kLooksBeforeBlame)) return;
  if (communicator_ == nullptr) return;
  if (control_.ended()) return take_apart();
  const std::string problem = find_problem();
  const auto gone = left_ > kLooksBeforeBlame ? control_.who_left() : std::nullopt;
  lock.unlock();
  if (gone) control_.blame(*gone, "left before the others");
  if (!problem.empty()) control_.abort(problem);
}

void NcclCommunicator::end_on_error(const std::function<void()>& act) noexcept {
  try {
    act();
  } catch (const c10::Error& error) {
    control_.abort(error.what_without_backtrace());
  } catch (const std::exception& error) {
    control_.abort(error.what());
  }
}

void NcclCommunicator::watch() {
  c10::OptionalDeviceGuard guard;  // keeps this thread from making a context on another GPU
  end_on_error([&] { guard.reset_device(device_); });
  while (sleep()) end_on_error([&] { look(); });
}

void NcclCommunicator::take_apart() {
  *static_cast<volatile int*>(ended_.mutable_data_ptr<int>()) = 1;
  if (communicator_ != nullptr) library_.abort(std::exchange(communicator_, nullptr));
  pending_.reset();
}

void NcclCommunicator::say_farewell() {
  const std::lock_guard lock(mutex_);
  if (communicator_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now() + kFarewell;
  Result state = control_.ended() ? Result::in_progress : library_.finalize(communicator_);
  while (state == Result::in_progress && !control_.ended() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    library_.async_error(communicator_, &state);
  }
  if (state == Result::success)
    library_.destroy(std::exchange(communicator_, nullptr));
  else
    take_apart();
}

}  // namespace sparsereel::models
