// Signal handling; see interrupt.h. The handler makes only async-signal-safe calls.
#include "app/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "app/media/video.h"
#include "models/checkpoint/atomic_file.h"

namespace sparsereel::app {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void on_signal(int) {
  if (!stop_requested.exchange(true)) {
    const int interrupted_error = errno;  // of the call that the signal fell into
    constexpr std::string_view text = "\nstopping after this step; once more to stop at once\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    errno = interrupted_error;
    return;
  }
  models::AtomicFile::remove_all_temporaries();
  remove_unfinished_png_folder();
  _exit(130);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  for (const int number : {SIGHUP, SIGQUIT}) {  // nohup and shells' background jobs ignore them: that is to stay so
    struct sigaction inherited {};
    sigaction(number, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
  return stop_requested;
}

}  // namespace sparsereel::app
