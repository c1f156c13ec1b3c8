// What must be settled before libtorch is: its libraries read the environment, the stack's limit and the working
// directory while they load. This runs before any of their code; where something has to change, the program sets it
// and starts itself again, which costs less than 0.1 s here and would cost four times that in main().
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string_view>

namespace sparsereel::app {
namespace {

constexpr rlim_t kUsualStack = 8 << 20;    // Linux's own default
constexpr rlim_t kLeastStack = 512 << 10;  // 96 KiB crashed in libtorch's threads, 128 did not

// Waiting threads of OpenMP spin for milliseconds, which costs several times the run's time where others want the
// cores. Whoever sets either variable has chosen.
constexpr std::string_view kWaitPolicy = "OMP_WAIT_POLICY=", kSpinCount = "GOMP_SPINCOUNT=";
char passive[] = "OMP_WAIT_POLICY=passive";  // NOLINT: execve() wants it so

[[noreturn]] void refuse(std::string_view text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  _exit(2);
}

/// oneMKL ends the process where there is none, with words about a library.
void require_working_directory() {
  std::array<char, PATH_MAX> path{};
  if (getcwd(path.data(), path.size()) == nullptr && errno == ENOENT)
    refuse("error: the working directory was deleted\n  remedy: change to a folder that exists\n");
}

/// Threads have stacks of the size that is the limit when the process starts. True where it was raised.
bool raise_stack_limit() {
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kUsualStack) return false;
  const rlim_t before = stack.rlim_cur;
  stack.rlim_cur = std::min(kUsualStack, stack.rlim_max);
  if (stack.rlim_cur < kLeastStack)
    refuse("error: the stack's limit is below the 512 KiB that libtorch needs\n  remedy: run 'ulimit -s 8192' first\n");
  return stack.rlim_cur > before && setrlimit(RLIMIT_STACK, &stack) == 0;
}

bool chooses_waiting(char** environment) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.starts_with(kWaitPolicy) || entry.starts_with(kSpinCount)) return true;
  }
  return false;
}

/// Comes back only where the program cannot be started again: it then runs as it is.
void start_again(char** arguments, char** environment, bool waits_passively) {
  // Its name is kept for ps and top; a program that the loader was told to run has the loader's.
  std::array<char, PATH_MAX> program{};
  if (getauxval(AT_BASE) == 0 || readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) return;
  size_t size = 0;
  while (environment[size] != nullptr) ++size;
  auto** changed = static_cast<char**>(std::calloc(size + 2, sizeof(char*)));
  if (changed == nullptr) return;
  std::copy_n(environment, size, changed);
  if (waits_passively) changed[size] = passive;
  execve(program.data(), arguments, changed);
  std::free(changed);
}

void before_libraries(int, char** arguments, char** environment) {
  require_working_directory();
  const bool waits_passively = !chooses_waiting(environment);
  if (raise_stack_limit() || waits_passively) start_again(arguments, environment, waits_passively);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const first)(int, char**, char**) = before_libraries;

}  // namespace
}  // namespace sparsereel::app
