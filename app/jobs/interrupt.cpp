// Handles signals in a separate thread that waits for them, so that no other thread is interrupted. In oneDNN's matrix
// products the stack pointer is not valid, so the frame of a signal handler would overwrite the heap.
#include "app/jobs/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>
#include <thread>

#include "models/files/temporary.h"

namespace sparsereel::app {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<bool> run_polls{false};  // true once the run polls interrupted()

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

/// Waits for signals. The first signal asks the run to stop if the run polls interrupted(). The second signal, or the
/// first if the run does not poll, ends the process.
void wait_for_signals(sigset_t signals, bool silent) {
  for (int number = 0;;) {
    if (sigwait(&signals, &number) != 0) continue;
    const bool first = !stop_requested.exchange(true);
    if (first && !silent)
      say(run_polls ? "\nstopping; press Ctrl-C again to stop at once\n" : "\ninterrupted: no step was done\n");
    if (!first || !run_polls) break;
  }
  models::Temporary::remove_all();
  _exit(130);
}

}  // namespace

void install_signal_handlers(bool silent) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) {
    std::signal(number, SIG_DFL);
    sigaddset(&signals, number);
  }
  for (const int number : {SIGHUP, SIGQUIT}) {  // stay ignored if nohup or a shell has set that
    struct sigaction inherited {};
    sigaction(number, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) sigaddset(&signals, number);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // later threads inherit the mask
  std::thread(wait_for_signals, signals, silent).detach();
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
  run_polls = true;
  return stop_requested;
}

}  // namespace sparsereel::app
