// Prepares the process before libtorch loads. The libraries of libtorch open files and read the environment, the stack
// limit and the working directory while they load. This code runs before the code of any library. If the environment or
// the stack limit must change, it changes them and starts the program again. A restart costs less than 0.1 s here; in
// main() it would cost four times as much.
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "app/clock.h"
#include "app/early_cuda.h"

namespace sparsereel::app {
namespace {

constexpr rlim_t kUsualStack = 8 << 20;    // Linux's default
constexpr rlim_t kLeastStack = 512 << 10;  // libtorch's threads crash with 96 KiB; this leaves a margin

/// A variable to add to the environment ("NAME=value"), unless the environment already has a variable that begins with
/// one of `choices`.
struct Setting {
  char* entry;
  std::array<std::string_view, 2> choices;
};

char passive[] = "OMP_WAIT_POLICY=passive", expandable[] = "PYTORCH_ALLOC_CONF=expandable_segments:True";  // NOLINT

constinit const std::array<Setting, 2> kSettings = {{
    // By default, OpenMP threads spin for milliseconds while they wait. If other programs want the cores, a run then
    // takes several times as long.
    {passive, {"OMP_WAIT_POLICY=", "GOMP_SPINCOUNT="}},
    // Keeps libtorch's free GPU memory in one piece. Otherwise stages with tensors of different shapes leave gaps
    // between them. In a GPU that was nearly full, the gaps were a fifth of the memory.
    {expandable, {"PYTORCH_ALLOC_CONF=", "PYTORCH_CUDA_ALLOC_CONF="}},
}};

[[noreturn]] void refuse(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  _exit(2);
}

/// Opens closed standard descriptors. Otherwise a file or socket that is opened later could get the number of a
/// standard descriptor, and messages and progress would be written into it. Standard input is opened for writing and
/// the others for reading, so that using them fails as on closed descriptors.
void open_standard_descriptors() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(number, F_GETFD) >= 0) continue;  // NOLINT(cppcoreguidelines-pro-type-vararg): a C function
    // open() returns the lowest free number.
    if (open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) != number)
      refuse(
          "error: a standard descriptor is closed, and /dev/null cannot be opened\n  remedy: leave standard input, "
          "output and error open\n");
  }
}

/// Refuses a deleted working directory. oneMKL would otherwise end the process with a misleading message about a
/// library.
void require_working_directory() {
  std::array<char, PATH_MAX> path{};
  if (getcwd(path.data(), path.size()) == nullptr && errno == ENOENT)
    refuse("error: the working directory was deleted\n  remedy: change to a folder that exists\n");
}

/// Raises the stack limit to Linux's default if it is lower. Returns true if it was raised; the program must then start
/// again, because the C library reads the limit, which sets the size of threads' stacks, at the start of the process.
bool raise_stack_limit() {
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kUsualStack) return false;
  const rlim_t before = stack.rlim_cur;
  stack.rlim_cur = std::min(kUsualStack, stack.rlim_max);
  if (stack.rlim_cur < kLeastStack)
    refuse("error: the stack limit is below the 512 KiB that libtorch needs\n  remedy: run 'ulimit -s 8192' first\n");
  return stack.rlim_cur > before && setrlimit(RLIMIT_STACK, &stack) == 0;
}

bool is_chosen(const Setting& setting, char** environment) {
  for (; *environment != nullptr; ++environment)
    for (const std::string_view choice : setting.choices)
      if (std::string_view(*environment).starts_with(choice)) return true;
  return false;
}

/// The environment variable that passes the time of the program's start ("PID:NANOSECONDS") to the restarted program,
/// which runs in the same process.
constexpr std::string_view kStarted = "SPARSEREEL_STARTED=";

/// Removes the variable from the environment, so that no child inherits it. Returns the time that it holds, or 0 if it
/// is missing or was set for another process.
int64_t take_start(char** environment) {
  int64_t start = 0;
  char** kept = environment;
  for (; *environment != nullptr; ++environment) {
    std::string_view entry = *environment;
    if (!entry.starts_with(kStarted)) {
      *kept++ = *environment;
      continue;
    }
    entry.remove_prefix(kStarted.size());
    pid_t process = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), process);
    if (error == std::errc() && process == getpid() && *end == ':')
      std::from_chars(end + 1, entry.data() + entry.size(), start);
  }
  *kept = nullptr;
  return start > 0 && start <= boot_nanoseconds() ? start : 0;
}

/// Returns "SPARSEREEL_STARTED=PID:NANOSECONDS" for this process, in static storage.
char* start_entry(int64_t start) {
  static constinit std::array<char, 64> text{};  // the zeros after the text end it
  char* const last = text.data() + text.size() - 1;
  char* end = std::ranges::copy(kStarted, text.data()).out;
  end = std::to_chars(end, last, getpid()).ptr;
  *end++ = ':';
  std::to_chars(end, last, start);
  return text.data();
}

bool lacks_settings(char** environment) {
  return std::ranges::any_of(kSettings, [&](const Setting& setting) { return !is_chosen(setting, environment); });
}

/// Returns a copy of the environment with the variables of kSettings that were missing, and with the program's start.
/// Returns null if memory runs out.
char** completed(char** environment, int64_t start) {
  size_t size = 0;
  while (environment[size] != nullptr) ++size;
  auto** all = static_cast<char**>(std::calloc(size + kSettings.size() + 2, sizeof(char*)));
  if (all == nullptr) return nullptr;
  char** end = std::copy_n(environment, size, all);
  for (const Setting& setting : kSettings)
    if (!is_chosen(setting, environment)) *end++ = setting.entry;
  *end = start_entry(start);
  return all;
}

/// Starts the program again. Returns only if that is impossible; the program then runs as it is.
void start_again(char** arguments, char** environment) {
  // Resolve the link /proc/self/exe, so that ps and top show the program's name. If the user ran the dynamic loader
  // with the program as its argument, the link leads to the loader. In that case do not start again.
  std::array<char, PATH_MAX> program{};
  if (getauxval(AT_BASE) == 0 || readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) return;
  execve(program.data(), arguments, environment);
}

void before_libraries(int, char** arguments, char** environment) {
  open_standard_descriptors();  // first, before anything else can get these numbers
  const int64_t now = boot_nanoseconds(), handed_over = take_start(environment),
                start = handed_over > 0 ? handed_over : now;
  set_program_start(start);
  require_working_directory();
  if (const bool raised = raise_stack_limit(); raised || lacks_settings(environment)) {
    char** const changed = completed(environment, start);
    if (changed != nullptr) start_again(arguments, changed);
    std::free(changed);
  }
#ifndef __SANITIZE_ADDRESS__  // the address sanitizer is a library that is not ready yet
  start_cuda_early(arguments, environment);
#endif
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const first)(int, char**, char**) = before_libraries;

}  // namespace
}  // namespace sparsereel::app
