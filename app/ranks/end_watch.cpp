// The only code that ends a rank's process from within.
#include "app/ranks/end_watch.h"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "app/called_program.h"
#include "app/ranks/children.h"
#include "app/terminal.h"
#include "hilbert/error.h"
#include "models/engine/failure.h"
#include "models/files/temporary.h"

namespace sparsereel::app {
namespace {

constexpr std::chrono::seconds kToNotice{8};             // time for rank 0's own thread to end the work
constexpr std::chrono::milliseconds kToExplain{100};     // time for a child's own error to arrive by a socket
constexpr std::chrono::milliseconds kToHearOfEnds{500};  // time for the system to report a child's end

/// Ends this process with an error. Only rank 0 prints the error and removes temporary files, because other ranks write
/// no files.
[[noreturn]] void end_process(const Error& error, bool is_rank_0) {
  if (is_rank_0) {
    std::cerr << (error.kind() == ErrorKind::cancelled ? "\ninterrupted: " : "\nerror: ") << one_line(error.what())
              << "\n  remedy: " << indented_lines(as_called(error.remedy())) << std::endl;
    models::Temporary::remove_all();
    pass_on_last_words();
  }
  _exit(models::exit_code(error.kind()));
}

}  // namespace

void EndWatch::connected(std::shared_ptr<models::SocketGroup> control) {
  {
    const std::lock_guard lock(mutex_);
    control_ = std::move(control);
    if (stage_ == Stage::starting) stage_ = Stage::working;
    if (!early_death_.empty()) control_->abort(early_death_);
  }
  call_ = control_->when_ended([this] { group_ended(); });
}

void EndWatch::go(Stage from, Stage to) {
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != from) return;
    stage_ = to;
  }
  changed_.notify_all();
}

void EndWatch::work() {
  go(Stage::resting, Stage::working);
}

void EndWatch::rest() {
  go(Stage::working, Stage::resting);
}

void EndWatch::leave() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stage_ = Stage::leaving;
  }
  changed_.notify_all();
  if (call_ >= 0) control_->forget(call_);
  call_ = -1;
}

bool EndWatch::is_working() const {
  const std::lock_guard lock(mutex_);
  return stage_ == Stage::working;
}

/// The SocketGroup calls this in its own thread when the group has ended.
void EndWatch::group_ended() {
  try {
    control_->check();
  } catch (const Error& error) {
    if (rank_ > 0) end_process(error, false);  // at once, because this rank's own thread may wait forever for the GPU
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stage_ != Stage::resting; });
    if (changed_.wait_for(lock, kToNotice, [this] { return stage_ != Stage::working; })) return;
    end_process(error, true);
  }
}

void EndWatch::child_died(int64_t rank, const std::string& name, const std::string& how) {
  std::this_thread::sleep_for(kToExplain);
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::leaving || how.empty()) return;
  if (control_)
    control_->blame(rank, how);
  else
    early_death_ = name + " " + how;
  changed_.notify_all();
}

std::string EndWatch::early_death() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kToHearOfEnds, [this] { return !early_death_.empty(); });
  return early_death_;
}

}  // namespace sparsereel::app
