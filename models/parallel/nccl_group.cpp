// Communicators of NCCL that never block the host: calls return while work goes on, and a thread of each looks after
// it.
#include "models/parallel/nccl_group.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "models/parallel/patience.h"

namespace sparsereel::models {
namespace {

using Clock = std::chrono::steady_clock;
using nccl::Result;

constexpr std::chrono::milliseconds kLook{250};  // between two looks at a communicator
constexpr int kLooksBeforeBlame = 8;           // at an error of NCCL: a rank's death may be behind it, and be heard of
constexpr std::chrono::seconds kFarewell{10};  // for what is left to do when a group goes

nccl::DataType data_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return nccl::DataType::float32;
    case at::kHalf:
      return nccl::DataType::float16;
    case at::kBFloat16:
      return nccl::DataType::bfloat16;
    case at::kLong:
      return nccl::DataType::int64;
    case at::kByte:
      return nccl::DataType::uint8;
    default:
      throw run_failure("ranks exchange fp32, fp16, bf16, int64 and uint8 alone", "report this");
  }
}

/// What NCCL may take of it where cards have no link.
bool has_shared_memory() {
  constexpr uint64_t kEnough = uint64_t{256} << 20;  // containers have 64 MiB
  struct statvfs memory = {};
  return statvfs("/dev/shm", &memory) == 0 && uint64_t{memory.f_bavail} * memory.f_frsize >= kEnough;
}

size_t count_of(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}

}  // namespace

/// A communicator, and the thread that ends it when it must.
class NcclGroup::Watched {
 public:
  Watched(SocketGroup& control, c10::Device device)
      : library_(nccl::library()), control_(control), device_(device), event_(device.type()), latest_(device.type()) {
    const c10::DeviceGuard guard(device);  // page-locked memory begins to use the thread's card
    ended_ = at::zeros({1}, at::TensorOptions().dtype(at::kInt).pinned_memory(true));
    watcher_ = std::thread([this] { watch(); });
  }
  ~Watched() {
    {
      const std::lock_guard lock(sleep_mutex_);
      quit_ = true;
    }
    woken_.notify_all();
    watcher_.join();
    say_farewell();
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  /// The communicator that `make` begins to make.
  template <typename Make>
  void begin(const Make& make) {
    const c10::DeviceGuard guard(device_);
    {
      const std::lock_guard lock(mutex_);
      require(make(library_, &communicator_), nullptr);
    }
    settle();
  }

  /// A split of this one: into `part`.
  void split_into(Watched& part, int color, int key) {
    const c10::DeviceGuard guard(device_);
    {
      const std::scoped_lock lock(mutex_, part.mutex_);
      if (communicator_ == nullptr) throw_end();
      require(library_.split(communicator_, color, key, &part.communicator_, nullptr), communicator_);
    }
    settle();
    part.settle();
  }

  /// Enqueues what `calls` calls, all at once.
  template <typename Calls>
  void enqueue(const Calls& calls) {
    control_.check();
    const c10::DeviceGuard guard(device_);
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    {
      const std::lock_guard lock(mutex_);
      if (communicator_ == nullptr) throw_end();
      require(library_.group_start(), communicator_);
      Result result = Result::success;
      const auto add = [&](Result each) {
        if (result == Result::success || result == Result::in_progress) result = each;
      };
      try {
        calls(library_, communicator_, static_cast<nccl::Stream>(stream.native_handle()), add);
      } catch (...) {
        library_.group_end();  // else the thread's next calls, of whatever communicator, would only be collected
        throw;
      }
      const Result end = library_.group_end();
      require(result, communicator_);
      require(end, communicator_);
    }
    settle();
    look_behind(stream);
  }

  /// int32 [1] of the host's memory, which a GPU reads: not 0 once nobody is to wait for others any more.
  const at::Tensor& ended() const { return ended_; }

  /// Has the watcher see to it that what the stream has now is done in time.
  void look_behind(const c10::Stream& stream) {
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

 private:
  void require(Result result, nccl::Communicator* communicator) const {
    if (result == Result::success || result == Result::in_progress) return;
    for (int look = 0; look < kLooksBeforeBlame && !control_.ended(); ++look) std::this_thread::sleep_for(kLook);
    control_.end(run_failure("NCCL: " + error_text(result, communicator),
                             "set NCCL_DEBUG=WARN to hear more; 'sparsereel doctor' shows cards and links"));
    throw_end();
  }

  std::string error_text(Result result, nccl::Communicator* communicator) const {
    const char* more = library_.last_error(communicator);
    std::string text = library_.error_string(result);
    if (more != nullptr && *more != 0) text += std::string(" (") + more + ")";
    return text;
  }

  [[noreturn]] void throw_end() const {
    control_.check();
    throw run_failure("the ranks' communicator is gone", "run the same command again");
  }

  /// Waits until NCCL has done on the host what the last call began: the first time it finds the other GPUs.
  void settle() {
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
        control_.abort("NCCL found no connection to the other ranks in time");
        throw_end();
      }
      if (turn > 100) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  /// False once the watcher is to quit.
  bool sleep() {
    std::unique_lock lock(sleep_mutex_);
    return !woken_.wait_for(lock, kLook, [this] { return quit_; });
  }

  /// Whether something that was enqueued is not done yet. Where the call that was looked at is, the last one is next,
  /// and has its own time.
  bool waits() {
    if (!pending_ || !event_.query()) return pending_.has_value();
    pending_.reset();
    if (is_last_) return false;
    std::swap(event_, latest_);
    is_last_ = true;
    if (!event_.query()) pending_.emplace(control_.limits().call);
    return pending_.has_value();
  }

  /// What is wrong, after as many looks as it takes others to say more; empty: nothing.
  std::string find_problem() {
    Result state = Result::success;
    const Result asked = library_.async_error(communicator_, &state);
    const bool fails = asked != Result::success || (state != Result::success && state != Result::in_progress);
    errors_ = fails ? errors_ + 1 : 0;
    if (errors_ > kLooksBeforeBlame) return "NCCL: " + error_text(state, communicator_);
    const bool waiting = waits();
    if (waiting && pending_->step().count() == 0) return "what the ranks exchange did not end in time";
    left_ = (waiting || settles_) && control_.who_left() ? left_ + 1 : 0;
    return {};
  }

  void look() {
    std::unique_lock lock(mutex_, std::defer_lock);
    // A call may hold it that waits in vain: for room in the GPU's queue, behind what waits for a rank that is gone.
    if (!lock.try_lock_for(kLook) && (!control_.ended() || ++blocked_ < kLooksBeforeBlame)) return;
    if (communicator_ == nullptr) return;
    if (control_.ended()) return take_apart();
    const std::string problem = find_problem();
    const auto gone = left_ > kLooksBeforeBlame ? control_.who_left() : std::nullopt;
    lock.unlock();
    if (gone) control_.blame(*gone, "left before the others");
    if (!problem.empty()) control_.abort(problem);
  }

  /// A fault of the GPU is thrown by whoever asks it something: here, nobody would catch it.
  template <typename Act>
  void end_on_error(const Act& act) noexcept {
    try {
      act();
    } catch (const c10::Error& error) {
      control_.abort(error.what_without_backtrace());
    } catch (const std::exception& error) {
      control_.abort(error.what());
    }
  }

  void watch() {
    c10::OptionalDeviceGuard guard;  // another card than the rank's would get a context, too
    end_on_error([&] { guard.reset_device(device_); });
    while (sleep()) end_on_error([&] { look(); });
  }

  /// What waits for the GPU goes on.
  void take_apart() {
    *static_cast<volatile int*>(ended_.mutable_data_ptr<int>()) = 1;
    if (communicator_ != nullptr) library_.abort(std::exchange(communicator_, nullptr));
    pending_.reset();
  }

  /// All ranks leave at about the same time: what they have begun comes to its end.
  void say_farewell() {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return;
    const auto end = Clock::now() + kFarewell;
    Result state = control_.ended() ? Result::in_progress : library_.finalize(communicator_);
    while (state == Result::in_progress && !control_.ended() && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      library_.async_error(communicator_, &state);
    }
    if (state == Result::success)
      library_.destroy(std::exchange(communicator_, nullptr));
    else
      take_apart();
  }

  const nccl::Library& library_;
  SocketGroup& control_;
  c10::Device device_;
  at::Tensor ended_;
  std::mutex sleep_mutex_;  // of quit_
  std::condition_variable woken_;
  bool quit_ = false;
  int errors_ = 0, left_ = 0, blocked_ = 0;     // the watcher's looks at them; of the first two in a row
  std::timed_mutex mutex_;                      // of all below
  nccl::Communicator* communicator_ = nullptr;  // null: not there yet, or taken apart
  c10::Event event_;                            // behind a call that was enqueued, which is looked at
  c10::Event latest_;                           // behind the last one, where that is another
  bool is_last_ = true;                         // event_ is behind the last one
  bool settles_ = false;                        // NCCL is still at the last call on the host
  std::optional<Patience> pending_;             // with event_, by what was seen last
  std::thread watcher_;
};

void NcclGroup::set_environment() {
  setenv("NCCL_NVLS_ENABLE", "0", /*replace=*/0);  // NOLINT(concurrency-mt-unsafe): as the header says
  // Four cards take 2.7 s longer to map the buffers that CUDA's virtual memory gives; others need shared memory.
  if (has_shared_memory()) setenv("NCCL_CUMEM_ENABLE", "0", /*replace=*/0);  // NOLINT(concurrency-mt-unsafe): as above
  // What NCCL_DEBUG asks for goes to standard output else, among reports. NCCL would empty an ordinary file.
  struct stat errors = {};
  if (fstat(STDERR_FILENO, &errors) == 0 && !S_ISREG(errors.st_mode))
    setenv("NCCL_DEBUG_FILE", "/dev/stderr", /*replace=*/0);  // NOLINT(concurrency-mt-unsafe): as above
}

std::string NcclGroup::new_id() {
  set_environment();
  nccl::UniqueId id;
  if (nccl::library().get_unique_id(&id) != Result::success)
    throw run_failure("NCCL finds no network to meet in", "set NCCL_DEBUG=WARN to hear more");
  return {id.bytes.begin(), id.bytes.end()};
}

std::shared_ptr<NcclGroup> NcclGroup::connect(std::shared_ptr<SocketGroup> control, c10::Device device) {
  set_environment();
  std::string id = control->rank() == 0 ? new_id() : std::string(nccl::UniqueId{}.bytes.size(), '\0');
  control->broadcast(at::from_blob(id.data(), {static_cast<int64_t>(id.size())}, at::kByte), 0);
  return connect(std::move(control), device, id);
}

std::shared_ptr<NcclGroup> NcclGroup::connect(std::shared_ptr<SocketGroup> control, c10::Device device,
                                              const std::string& id) {
  nccl::UniqueId unique;
  if (id.size() != unique.bytes.size()) throw run_failure("rank 0 told no id of NCCL's", "report this");
  std::ranges::copy(id, unique.bytes.begin());
  auto communicator = std::make_unique<Watched>(*control, device);
  communicator->begin([&](const nccl::Library& library, nccl::Communicator** made) {
    nccl::Config config;
    return library.init_rank(made, static_cast<int>(control->size()), unique, static_cast<int>(control->rank()),
                             &config);
  });
  return std::shared_ptr<NcclGroup>(new NcclGroup(std::move(control), device, std::move(communicator)));
}

NcclGroup::NcclGroup(std::shared_ptr<SocketGroup> control, c10::Device device, std::unique_ptr<Watched> communicator)
    : control_(std::move(control)), device_(device), communicator_(std::move(communicator)) {}

/// All at once: NCCL takes 0.3 s to let go of each.
NcclGroup::~NcclGroup() {
  std::vector<std::future<void>> farewells;
  try {
    for (auto& part : parts_) farewells.push_back(std::async(std::launch::async, [&part] { part.second.reset(); }));
  } catch (const std::system_error&) {  // no thread: what is left goes with the map
  }
  windows_.reset();  // which may wait for a rank that is gone, until the communicator's watcher has heard of it
  communicator_.reset();
}

void NcclGroup::check_tensors(std::span<const at::Tensor> tensors) const {
  if (static_cast<int64_t>(tensors.size()) != size())
    throw run_failure(
        "a call of " + std::to_string(size()) + " ranks has " + std::to_string(tensors.size()) + " tensors",
        "report this");
  for (const at::Tensor& tensor : tensors)
    if (!tensor.is_contiguous() || tensor.device() != device_)
      throw run_failure("ranks exchange contiguous tensors on their GPU alone", "report this");
}

void NcclGroup::all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) {
  check_tensors(send);
  check_tensors(receive);
  const auto own = static_cast<size_t>(rank());
  receive[own].copy_(send[own]);
  communicator_->enqueue(
      [&](const nccl::Library& library, nccl::Communicator* all, nccl::Stream stream, const auto& add) {
        for (size_t i = 0; i < send.size(); ++i) {
          const auto peer = static_cast<int>(i);
          if (i == own) continue;
          if (send[i].numel() > 0)
            add(library.send(send[i].const_data_ptr(), count_of(send[i]), data_type(send[i]), peer, all, stream));
          if (receive[i].numel() > 0)
            add(library.receive(receive[i].mutable_data_ptr(), count_of(receive[i]), data_type(receive[i]), peer, all,
                                stream));
        }
      });
}

void NcclGroup::all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) {
  all_to_all(std::vector<at::Tensor>(static_cast<size_t>(size()), send), receive);
}

void NcclGroup::all_reduce(const at::Tensor& tensor, nccl::Operation operation) {
  check_tensors(std::vector<at::Tensor>(static_cast<size_t>(size()), tensor));
  if (tensor.numel() == 0) return;
  void* data = tensor.mutable_data_ptr();
  communicator_->enqueue(
      [&](const nccl::Library& library, nccl::Communicator* all, nccl::Stream stream, const auto& add) {
        add(library.all_reduce(data, data, count_of(tensor), data_type(tensor), operation, all, stream));
      });
}

void NcclGroup::all_reduce_sum(const at::Tensor& tensor) {
#ifdef SPARSEREEL_CUDA
  check_tensors(std::vector<at::Tensor>(static_cast<size_t>(size()), tensor));
  if (windows_ && static_cast<PeerWindows&>(*windows_).add_up(tensor)) return;
#endif
  all_reduce(tensor, nccl::Operation::sum);
}

void NcclGroup::all_reduce_max(const at::Tensor& tensor) {
  all_reduce(tensor, nccl::Operation::max);
}

void NcclGroup::broadcast(const at::Tensor& tensor, int64_t root) {
  check_tensors(std::vector<at::Tensor>(static_cast<size_t>(size()), tensor));
  if (tensor.numel() == 0) return;
  void* data = tensor.mutable_data_ptr();
  communicator_->enqueue(
      [&](const nccl::Library& library, nccl::Communicator* all, nccl::Stream stream, const auto& add) {
        add(library.broadcast(data, data, count_of(tensor), data_type(tensor), static_cast<int>(root), all, stream));
      });
}

std::shared_ptr<Group> NcclGroup::split(int64_t color) {
  return part(control_->colors(color));
}

/// All ranks find one here, or none does.
std::shared_ptr<NcclGroup> NcclGroup::part(const std::vector<int64_t>& colors) {
  std::shared_ptr<NcclGroup>& known = parts_[colors];
  if (known) return known;
  std::shared_ptr<SocketGroup> control = control_->part(colors);
  auto communicator = std::make_unique<Watched>(*control, device_);
  // NCCL's colors are not negative, and of 32 bits: the part's first rank is one.
  const auto first = std::ranges::find(colors, colors[static_cast<size_t>(rank())]) - colors.begin();
  communicator_->split_into(*communicator, static_cast<int>(first), static_cast<int>(rank()));
  known.reset(new NcclGroup(std::move(control), device_, std::move(communicator)));
  return known;
}

void NcclGroup::prepare(const std::vector<std::vector<int64_t>>& splits) {
  const c10::impl::VirtualGuardImpl gpu(device_.type());
  const c10::StreamGuard own(gpu.getStreamFromGlobalPool(device_));
  prepare_calls();
  for (const std::vector<int64_t>& colors : splits) part(colors)->prepare_calls();
}

/// One of each kind: channels to all others, and those of reductions. Waits for them: a communicator is split while
/// nothing is under way on it.
void NcclGroup::prepare_calls() {
  const auto one = [this] { return at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(device_)); };
  std::vector<at::Tensor> receive(static_cast<size_t>(size()));
  for (at::Tensor& each : receive) each = one();
  all_gather(one(), receive);
  for (const auto call : {&NcclGroup::all_reduce_sum, &NcclGroup::all_reduce_max}) (this->*call)(receive.front());
  broadcast(receive.front(), 0);
  c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  control_->check();
}

Windows* NcclGroup::windows(int64_t bytes, [[maybe_unused]] at::Device device) {
  if (bytes <= window_bytes_) return windows_.get();
  close_windows();
#ifdef SPARSEREEL_CUDA
  windows_ = PeerWindows::make(*control_, device_, bytes, communicator_->ended(), [this] {
    communicator_->look_behind(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  });
#endif
  window_bytes_ = bytes;
  return windows_.get();
}

void NcclGroup::close_windows() {
  const std::unique_ptr<Windows> old = std::exchange(windows_, nullptr);
  window_bytes_ = 0;
  if (old) old->close();
}

void NcclGroup::abort(const std::string& reason) noexcept {
  control_->abort(reason);
}

}  // namespace sparsereel::models
