// A communicator of NCCL, and the thread that aborts it when necessary.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "models/parallel/nccl_library.h"
#include "models/parallel/patience.h"
#include "models/parallel/socket_group.h"

namespace sparsereel::models {

/// Enqueues NCCL calls, which return before their work is done. A thread watches NCCL's errors, the time limits and the
/// control group, and aborts the communicator if one of them reports a failure. All calls then throw Error.
class NcclCommunicator {
 public:
  using Make = std::function<nccl::Result(const nccl::Library&, nccl::Communicator**)>;
  using Add = std::function<void(nccl::Result)>;
  using Calls = std::function<void(const nccl::Library&, nccl::Communicator*, nccl::Stream, const Add&)>;

  /// `control` is the control group of the same ranks. It must outlive this object.
  NcclCommunicator(SocketGroup& control, c10::Device device);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  void begin(const Make& make);
  /// Splits this communicator: `part` becomes the communicator of the ranks with this color, ordered by `key`.
  void split_into(NcclCommunicator& part, int color, int key);
  /// Enqueues the NCCL calls of `calls` on torch's current stream, as one group.
  void enqueue(const Calls& calls);

  /// Returns int32 [1] in host memory that the GPU can read. It becomes 1 when GPUs should stop waiting for other
  /// ranks.
  const at::Tensor& ended() const { return ended_; }

  /// Lets the watcher check that the work enqueued on the stream finishes in time.
  void look_behind(const c10::Stream& stream);

 private:
  void require(nccl::Result result, nccl::Communicator* communicator) const;
  std::string error_text(nccl::Result result, nccl::Communicator* communicator) const;
  [[noreturn]] void throw_end() const;
  /// Waits until NCCL has finished the last call's work on the host. The first call connects to the other GPUs.
  void settle();
  /// Waits for the next look of the watcher. Returns false once the watcher should quit.
  bool sleep();
  /// Returns true while enqueued work is unfinished. When the watched call is done, the last call is watched next, with
  /// its own time limit.
  bool waits();
  /// Returns a description of what is wrong; empty if nothing is wrong. Reports an NCCL error only after it has found
  /// one in several calls in a row, because another rank's message may explain the error.
  std::string find_problem();
  void look();
  /// Runs act() and ends the group if it throws. GPU queries throw the GPU's faults, and nothing else would catch them
  /// in the watcher's thread.
  void end_on_error(const std::function<void()>& act) noexcept;
  void watch();
  /// Aborts the communicator. A GPU that waits for other ranks then goes on.
  void take_apart();
  /// Finalizes the communicator. Work that was started can finish, because all ranks leave at about the same time.
  void say_farewell();

  const nccl::Library& library_;
  SocketGroup& control_;
  c10::Device device_;
  at::Tensor ended_;
  std::mutex sleep_mutex_;  // guards quit_
  std::condition_variable woken_;
  bool quit_ = false;
  /// How often the watcher found an NCCL error, a rank that left, or a blocked mutex. The first two count consecutive
  /// findings.
  int errors_ = 0, left_ = 0, blocked_ = 0;
  std::timed_mutex mutex_;                      // guards all members below
  nccl::Communicator* communicator_ = nullptr;  // null until it is created, and after it is aborted
  c10::Event event_;                            // recorded after the enqueued call that is watched
  c10::Event latest_;                           // recorded after the last call, if that is not the watched call
  bool is_last_ = true;                         // true if the last call is the watched call
  bool settles_ = false;                        // true while NCCL works on the last call on the host
  std::optional<Patience> pending_;             // time limit of the watched call; unset if no call is watched
  std::thread watcher_;
};

}  // namespace sparsereel::models
