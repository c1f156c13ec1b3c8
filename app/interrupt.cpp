// Signal handling; see interrupt.h. The handler makes only async-signal-safe calls.
#include "app/interrupt.h"

#include <unistd.h>

#include <atomic>
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
    constexpr std::string_view text = "\nstopping after this step; once more to stop at once\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
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
  std::signal(SIGXFSZ, SIG_IGN);
}

bool interrupted() {
  return stop_requested;
}

}  // namespace sparsereel::app
