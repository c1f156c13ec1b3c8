// Starts this program again with posix_spawn. Children inherit the descriptors of their sockets. An environment
// variable holds the numbers of the descriptors.
#include "app/ranks/children.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <mutex>
#include <system_error>

#include "app/ranks/variables.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {
namespace {

constexpr const char *kRank = "SPARSEREEL_RANK", *kLinks = "SPARSEREEL_RANK_LINKS", *kParent = "SPARSEREEL_RANK_PARENT";
constexpr std::chrono::seconds kFarewell{5};          // time for a child to end before it is killed
constexpr std::chrono::milliseconds kLastWords{100};  // time to print what NCCL wrote

/// Returns the links as a text: "-1:-1,7:8,9:10".
std::string text_of(const std::vector<models::Link>& links) {
  std::string text;
  for (const models::Link& link : links)
    text += (text.empty() ? "" : ",") + std::to_string(link.data) + ":" + std::to_string(link.control);
  return text;
}

std::vector<models::Link> links_in(const std::string& text) {
  std::vector<models::Link> links;
  for (const std::string& pair : split(text, ',')) {
    const size_t colon = pair.find(':');
    links.push_back({.data = static_cast<int>(parse_number<int64_t>(pair.substr(0, colon)).value_or(-1)),
                     .control = static_cast<int>(parse_number<int64_t>(pair.substr(colon + 1)).value_or(-1))});
  }
  return links;
}

/// This process's environment with the variables `added`, and without the variables that made this process a rank.
class ChildEnvironment {
 public:
  explicit ChildEnvironment(std::vector<std::string> added) : added_(std::move(added)) {
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (!std::string_view(*entry).starts_with(kRank)) entries_.push_back(*entry);
    for (std::string& each : added_) entries_.push_back(each.data());
    entries_.push_back(nullptr);
  }
  char** get() { return entries_.data(); }

 private:
  std::vector<std::string> added_;
  std::vector<char*> entries_;
};

/// Changes to file descriptors between fork and exec.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void open(const std::string& file, int as) {
    posix_spawn_file_actions_addopen(&actions_, as, file.c_str(), O_RDONLY, 0);
  }
  void open_nothing(int as) { posix_spawn_file_actions_addopen(&actions_, as, "/dev/null", O_RDWR, 0); }
  /// Gives the descriptor to the child under the number `as`, even if both numbers are equal.
  void give(int descriptor, int as) { posix_spawn_file_actions_adddup2(&actions_, descriptor, as); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

constexpr std::string_view kFollows = "rank ";

/// Returns the command line of a rank that follows rank 0, for is_follower(). ps and top show it, too.
std::vector<std::string> arguments_of_follower(int64_t rank, int64_t size) {
  return {"sparsereel", std::string(kFollows) + std::to_string(rank) + " of " + std::to_string(size)};
}

constexpr const char *kNcclWords = "NCCL_DEBUG_FILE", *kOpenFile = "/proc/self/fd/";

/// Copies what arrives in a pipe to stderr.
class WordsPipe {
 public:
  explicit WordsPipe(int source) : source_(source) {}

  /// Runs until the process ends.
  void pass_on() {
    for (bool open = true; open;) {
      if (!comes(-1)) continue;
      const std::lock_guard lock(mutex_);
      if (comes(0)) open = pass_on_some();
    }
  }
  /// Copies what has already arrived.
  void drain() {
    const auto end = std::chrono::steady_clock::now() + kLastWords;
    const std::unique_lock lock(mutex_, end);
    while (lock && std::chrono::steady_clock::now() < end && comes(0) && pass_on_some()) {
    }
  }

 private:
  bool comes(int milliseconds) const {
    pollfd handle = {.fd = source_, .events = POLLIN, .revents = 0};
    return poll(&handle, 1, milliseconds) > 0;
  }
  bool pass_on_some() const {
    std::array<char, 4096> bytes{};
    const ssize_t count = read(source_, bytes.data(), bytes.size());
    if (count > 0) models::write_all(STDERR_FILENO, bytes.data(), static_cast<size_t>(count));
    return count > 0;
  }

  int source_;
  std::timed_mutex mutex_;  // held from reading bytes until they are written
};

std::atomic<WordsPipe*> own_pipe{nullptr};  // never freed, because the thread that uses it runs until the process ends

/// Returns the write end of a pipe for NCCL_DEBUG's output of this process and its children. The process that made the
/// pipe, this one or its parent, copies the output to its own stderr. NCCL cannot write to stderr itself: it truncates
/// each file that it opens, and a child's stderr is not its parent's. Returns -1 if no output is asked for, or if the
/// user names a file.
int find_nccl_words() {
  if (process_environment("NCCL_DEBUG") == nullptr) return -1;
  if (const char* named = process_environment(kNcclWords); named != nullptr) {
    const std::string_view file = named;
    if (!file.starts_with(kOpenFile)) return -1;
    const auto number = parse_number<int>(file.substr(std::string_view(kOpenFile).size())).value_or(-1);
    return fcntl(number, F_GETFD) < 0 ? -1 : number;  // NOLINT(cppcoreguidelines-pro-type-vararg): POSIX
  }
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
  own_pipe = new WordsPipe(ends[0]);
  std::thread([] { own_pipe.load()->pass_on(); }).detach();
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing of ours reads the environment while ranks start
  setenv(kNcclWords, (kOpenFile + std::to_string(ends[1])).c_str(), /*replace=*/0);
  return ends[1];
}

std::string telling_line_in(int words) {
  std::array<char, 4096> end{};
  const off_t size = lseek(words, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(end.size()));
  const ssize_t count = pread(words, end.data(), end.size(), from);
  return telling_line(std::string_view(end.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))));
}

}  // namespace

void pass_on_last_words() {
  if (WordsPipe* pipe = own_pipe) pipe->drain();
}

std::string telling_line(std::string_view words) {
  const auto line_at = [&](size_t start) { return std::string(words.substr(start, words.find('\n', start) - start)); };
  words = words.substr(0, words.find_last_not_of(" \n\r\t") + 1);
  constexpr std::string_view kError = "\nerror: ";
  if (const size_t error = words.rfind(kError); error != std::string_view::npos) return line_at(error + 1);
  return line_at(words.starts_with(kError.substr(1)) ? 0 : words.find_last_of('\n') + 1);
}

std::optional<StartedRank> find_started_rank(const Environment& environment) {
  const char *rank = environment(kRank), *device = environment(kStartedRankDevice), *links = environment(kLinks),
             *parent = environment(kParent);
  if (rank == nullptr || device == nullptr || links == nullptr || parent == nullptr) return std::nullopt;
  return StartedRank{.rank = parse_number<int64_t>(rank).value_or(0),
                     .device = device,
                     .links = links_in(links),
                     .parent = static_cast<pid_t>(parse_number<int64_t>(parent).value_or(0))};
}

bool is_follower(int argc, char** argv) {
  return argc == 2 && std::string_view(argv[1]).starts_with(kFollows);
}

void live_no_longer_than(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);   // NOLINT: a system call
  if (getppid() != parent) _exit(1);  // the parent has already ended
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
}

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

Children::Children(const std::vector<std::vector<models::Link>>& links, const std::vector<std::string>& devices,
                   const std::vector<std::string>& arguments, int input)
    : quit_event_(eventfd(0, EFD_CLOEXEC)) {
  const auto size = static_cast<int64_t>(links.size());
  try {
    for (int64_t rank = 1; rank < size; ++rank)
      start(rank, links[static_cast<size_t>(rank)], devices.at(static_cast<size_t>(rank)),
            arguments.empty() ? arguments_of_follower(rank, size) : arguments, input);
  } catch (...) {
    end_all();
    throw;
  }
}

void Children::start(int64_t rank, const std::vector<models::Link>& links, const std::string& device,
                     std::vector<std::string> arguments, int input) {
  const int nccl_words = find_nccl_words();  // before the environment is copied, because this may set a variable
  ChildEnvironment environment(
      {std::string(kRank) + "=" + std::to_string(rank), std::string(kStartedRankDevice) + "=" + device,
       std::string(kLinks) + "=" + text_of(links), std::string(kParent) + "=" + std::to_string(getpid())});
  Child child{.rank = rank, .words = memfd_create("words of a rank", MFD_CLOEXEC)};
  FileActions files;
  files.open(input < 0 ? "/dev/null" : "/proc/self/fd/" + std::to_string(input), STDIN_FILENO);
  files.open_nothing(STDOUT_FILENO);
  if (child.words >= 0)
    files.give(child.words, STDERR_FILENO);
  else
    files.open_nothing(STDERR_FILENO);
  for (const models::Link& link : links)
    for (const int socket : {link.data, link.control})
      if (socket >= 0) files.give(socket, socket);
  if (nccl_words >= 0) files.give(nccl_words, nccl_words);
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  const int error =
      posix_spawn(&child.process, "/proc/self/exe", files.get(), nullptr, words.data(), environment.get());
  if (error != 0) {
    if (child.words >= 0) close(child.words);
    throw run_failure("rank " + std::to_string(rank) + " (" + device +
                          ") could not be started: " + std::generic_category().message(error),
                      "check whether the machine has memory for another process");
  }
  child.handle = static_cast<int>(syscall(SYS_pidfd_open, child.process, 0));
  children_.push_back(child);
}

void Children::watch(std::function<void(int64_t rank, const std::string& how)> died) {
  watcher_ = std::thread([this, died = std::move(died)] { watch_all(died); });
}

void Children::kill(int64_t rank) const {
  for (const Child& child : children_)  // use the handle, because the system may reuse the process id
    if (child.rank == rank) syscall(SYS_pidfd_send_signal, child.handle, SIGKILL, nullptr, 0);
}

void Children::watch_all(const std::function<void(int64_t rank, const std::string& how)>& died) {
  for (;;) {
    std::vector<pollfd> handles = {{.fd = quit_event_, .events = POLLIN, .revents = 0}};
    for (const Child& child : children_)
      handles.push_back({.fd = child.ended ? -1 : child.handle, .events = POLLIN, .revents = 0});
    if (poll(handles.data(), handles.size(), -1) < 0) continue;
    if (handles.front().revents != 0) return;
    for (size_t i = 0; i < children_.size(); ++i)
      if (handles[i + 1].revents != 0) died(children_[i].rank, how_it_ended(children_[i]));
  }
}

std::string Children::how_it_ended(Child& child) {
  int status = 0;
  if (waitpid(child.process, &status, 0) != child.process) status = 0;
  child.ended = true;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  std::string how = WIFSIGNALED(status) ? "was killed by signal " + std::to_string(WTERMSIG(status))
                                        : "ended with exit code " + std::to_string(WEXITSTATUS(status));
  if (const std::string words = telling_line_in(child.words); !words.empty()) how += ": " + words;
  return how;
}

Children::~Children() {
  end_all();
}

void Children::end_all() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(quit_event_, &one, sizeof(one));
  if (watcher_.joinable()) watcher_.join();
  const auto end = std::chrono::steady_clock::now() + kFarewell;
  for (Child& child : children_) {
    if (!child.ended) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
      pollfd handle = {.fd = child.handle, .events = POLLIN, .revents = 0};
      if (child.handle < 0 || poll(&handle, 1, static_cast<int>(std::max<int64_t>(left, 0))) <= 0)
        ::kill(child.process, SIGKILL);
      waitpid(child.process, nullptr, 0);
    }
    if (child.handle >= 0) close(child.handle);
    if (child.words >= 0) close(child.words);
  }
  children_.clear();
  if (quit_event_ >= 0) close(quit_event_);
  quit_event_ = -1;
}

}  // namespace sparsereel::app
