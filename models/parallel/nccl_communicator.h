// A communicator of NCCL, and the thread that ends it when it must.
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

/// Calls return while work goes on. A thread watches NCCL's errors, the time and the control group, and takes the
/// communicator apart once one of them has bad news. All calls throw Error then.
class NcclCommunicator {
 public:
  /// Begins to make a communicator.
  using Make = std::function<nccl::Result(const nccl::Library&, nccl::Communicator**)>;
  /// Takes the result of each of NCCL's calls.
  using Add = std::function<void(nccl::Result)>;
  /// Calls NCCL on a stream.
  using Calls = std::function<void(const nccl::Library&, nccl::Communicator*, nccl::Stream, const Add&)>;

  /// `control`: of the same ranks; it must outlive this.
  NcclCommunicator(SocketGroup& control, c10::Device device);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  void begin(const Make& make);
  /// Splits this one: `part` becomes the communicator of the ranks of this color.
  void split_into(NcclCommunicator& part, int color, int key);
  /// Enqueues what `calls` calls on torch's current stream, all at once.
  void enqueue(const Calls& calls);

  /// int32 [1] of the host's memory, which a GPU reads: not 0 once nobody is to wait for others any more.
  const at::Tensor& ended() const { return ended_; }

  /// Has the watcher see to it that what the stream has now is done in time.
  void look_behind(const c10::Stream& stream);

 private:
  void require(nccl::Result result, nccl::Communicator* communicator) const;
  std::string error_text(nccl::Result result, nccl::Communicator* communicator) const;
  [[noreturn]] void throw_end() const;
  /// Waits until NCCL has done on the host what the last call began: the first time it finds the other GPUs.
  void settle();
  /// False once the watcher is to quit.
  bool sleep();
  /// True while something that was enqueued is not done yet. Once the call that was looked at is done, the last one is
  /// next, and has its own time.
  bool waits();
  /// What is wrong, after as many looks as it takes others to say more; empty: nothing.
  std::string find_problem();
  void look();
  /// A fault of the GPU is thrown by whoever asks it something: here, nobody would catch it.
  void end_on_error(const std::function<void()>& act) noexcept;
  void watch();
  /// What waits for the GPU goes on.
  void take_apart();
  /// All ranks leave at about the same time: what they have begun comes to its end.
  void say_farewell();

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

}  // namespace sparsereel::models
