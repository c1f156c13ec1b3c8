// Starts ffmpeg with posix_spawn, and exchanges data with it through sockets in place of pipes.
#include "app/media/without_libraries/ffmpeg_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "app/media/writers.h"
#include "hilbert/error.h"
#include "models/files/write_failure.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKept = 4096;  // how many of the last bytes of ffmpeg's messages are kept
constexpr size_t kLines = 3;    // how many of the messages' last lines an error quotes

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

fs::path program_on_path(const std::string& name) {
  const char* folders = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  std::istringstream all(folders == nullptr ? "/usr/bin:/bin" : folders);
  for (std::string folder; std::getline(all, folder, ':');)
    if (fs::path path = fs::path(folder.empty() ? "." : folder) / name; is_program(path)) return path;
  return {};
}

/// Joins the last lines: "a\nb\n" becomes "a; b". Leaves out the addresses in "[mp4 @ 0x55d0c0] ", and names the file.
std::string last_lines(std::string text, const fs::path& file) {
  const std::string_view input = Ffmpeg::kInput;
  for (size_t at = text.find(input); at != std::string::npos; at = text.find(input, at + file.string().size()))
    text.replace(at, input.size(), file.string());
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; all >> std::ws && std::getline(all, line);) {
    if (const size_t at = line.find(" @ 0x"); line.starts_with('[') && at != std::string::npos)
      line.erase(at, std::min(line.find(']', at), line.size()) - at);
    lines.push_back(line.substr(0, line.find_last_not_of(" \t\r") + 1));
  }
  std::string result;
  for (size_t i = lines.size() - std::min(lines.size(), kLines); i < lines.size(); ++i)
    result += (result.empty() ? "" : "; ") + lines[i];
  return result;
}

[[noreturn]] void throw_start_failure(const fs::path& file, int error) {
  throw run_failure(file.string() + ": ffmpeg could not be started: " + std::generic_category().message(error),
                    "check whether the machine has memory for another process, or set SPARSEREEL_FFMPEG");
}

std::array<Descriptor, 2> pipe_for(const fs::path& file) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_start_failure(file, errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// Returns a pair of connected sockets, which serve as a pipe. send() to a closed socket can return an error, but
/// write() to a closed pipe raises SIGPIPE.
std::array<Descriptor, 2> connection_for(const fs::path& file) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) throw_start_failure(file, errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// Restores SIGCHLD's default if it is ignored, as in programs that some services start. While it is ignored, the
/// system does not keep the exit status of children.
void stop_ignoring_children() {
  struct sigaction now {};
  if (sigaction(SIGCHLD, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) std::signal(SIGCHLD, SIG_DFL);
}

/// Starts a program. descriptors[i] becomes its file descriptor i; a negative entry stands for /dev/null. Returns 0 or
/// the system's error number.
int start_program(const fs::path& program, std::vector<std::string> words, const std::vector<int>& descriptors,
                  pid_t* process) {
  stop_ignoring_children();
  posix_spawnattr_t attributes{};
  posix_spawn_file_actions_t files{};
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_init(&files);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&usual, number);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setpgroup(&attributes, 0);  // a new process group, because Ctrl-C must not end ffmpeg
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  for (size_t i = 0; i < descriptors.size(); ++i) {
    if (descriptors[i] >= 0)
      posix_spawn_file_actions_adddup2(&files, descriptors[i], static_cast<int>(i));
    else
      posix_spawn_file_actions_addopen(&files, static_cast<int>(i), "/dev/null", O_RDWR, 0);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = posix_spawn(process, program.c_str(), &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

/// Duplicates a descriptor to a number of at least kFirstFree. The descriptors that the new program gets, from 0 on,
/// then cannot overwrite it.
Descriptor out_of_the_way(int descriptor) {
  constexpr int kFirstFree = 10;
  return Descriptor(descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, kFirstFree));  // NOLINT: POSIX
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

void Descriptor::reset() {
  if (number_ >= 0) close(number_);
  number_ = -1;
}

fs::path ffmpeg_program() {
  const char* named = std::getenv("SPARSEREEL_FFMPEG");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (named == nullptr || *named == '\0') return program_on_path("ffmpeg");
  if (fs::path(named).has_parent_path()) return is_program(named) ? named : "";
  return program_on_path(named);
}

void require_media(const fs::path& path) {
  if (!ffmpeg_program().empty()) return;
  const char* named = std::getenv("SPARSEREEL_FFMPEG");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (named != nullptr && *named != '\0')
    throw bad_file(path, "needs ffmpeg, but SPARSEREEL_FFMPEG=" + std::string(named) + " is not a program",
                   "set it to an ffmpeg program, or unset it to use the one on the PATH");
  throw bad_file(
      path, "needs the program ffmpeg, and there is none on the PATH",
      "install ffmpeg (beside a wheel: pip install imageio-ffmpeg), or name one with SPARSEREEL_FFMPEG; .y4m, "
      ".safetensors, folders of PNGs and .ppm need none");
}

Ffmpeg::Ffmpeg(const Start& start) : file_(start.file) {
  require_media(start.file);
  auto [messages, said] = pipe_for(start.file);
  auto [output, written] = pipe_for(start.file);
  auto [input, fed] = connection_for(start.file);
  // Without -xerror, ffmpeg reports success even if it could not write the end of a file.
  std::vector<std::string> words = {"ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-xerror", "-y"};
  words.insert(words.end(), start.arguments.begin(), start.arguments.end());
  std::vector<Descriptor> given;
  std::vector<int> numbers;
  for (const int descriptor : {start.input >= 0 ? start.input : fed.number(), start.output ? written.number() : -1,
                               said.number(), start.metadata, start.sound}) {
    given.push_back(out_of_the_way(descriptor));
    numbers.push_back(given.back().number());
  }
  while (numbers.back() < 0 && numbers.size() > 3) numbers.pop_back();
  if (const int error = start_program(ffmpeg_program(), std::move(words), numbers, &process_); error != 0)
    throw_start_failure(start.file, error);
  messages_ = std::move(messages);
  if (start.output) output_ = std::move(output);
  if (start.input < 0) input_ = std::move(input);
  if (start.limit) end_ = std::chrono::steady_clock::now() + *start.limit;
}

Ffmpeg::~Ffmpeg() {
  if (process_ < 0) return;
  kill();
  waitpid(process_, nullptr, 0);
}

void Ffmpeg::kill() {
  ::kill(process_, SIGKILL);
}

bool Ffmpeg::wait(short& input, short& output) {
  for (;;) {
    std::array<pollfd, 3> handles = {{{.fd = input != 0 ? input_.number() : -1, .events = input, .revents = 0},
                                      {.fd = output != 0 ? output_.number() : -1, .events = output, .revents = 0},
                                      {.fd = messages_.number(), .events = POLLIN, .revents = 0}}};
    int milliseconds = -1;
    if (end_)
      milliseconds = static_cast<int>(std::max<int64_t>(
          0, std::chrono::ceil<std::chrono::milliseconds>(*end_ - std::chrono::steady_clock::now()).count()));
    const int ready = poll(handles.data(), handles.size(), milliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      out_of_time_ = true;
      kill();
      return false;
    }
    if (handles[2].revents != 0) keep_messages();
    if (handles[0].revents == 0 && handles[1].revents == 0 && messages_.number() >= 0) continue;
    input = handles[0].revents;
    output = handles[1].revents;
    return true;
  }
}

void Ffmpeg::keep_messages() {
  std::array<char, kKept> text{};
  const ssize_t size = ::read(messages_.number(), text.data(), text.size());
  if (size < 0 && errno == EINTR) return;
  if (size <= 0) return messages_.reset();
  last_messages_.append(text.data(), static_cast<size_t>(size));
  if (last_messages_.size() > kKept) last_messages_.erase(0, last_messages_.size() - kKept);
}

bool Ffmpeg::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    short input = POLLOUT, output = 0;
    if (!wait(input, output)) return false;
    const ssize_t sent = send(input_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool Ffmpeg::read(std::vector<uint8_t>& bytes) {
  constexpr size_t kPiece = size_t{1} << 16;
  for (;;) {
    short input = 0, output = POLLIN;
    if (!wait(input, output)) return false;
    const size_t before = bytes.size();
    bytes.resize(before + kPiece);
    const ssize_t size = ::read(output_.number(), bytes.data() + before, kPiece);
    bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(size, 0)));
    if (size < 0 && errno == EINTR) continue;
    return size > 0;
  }
}

std::string Ffmpeg::finish() {
  input_.reset();
  output_.reset();
  while (messages_.number() >= 0) {
    short input = 0, output = 0;
    if (!wait(input, output)) break;
  }
  return how_it_ended();
}

std::string Ffmpeg::how_it_ended() {
  int status = 0;
  pid_t ended = 0;
  do ended = waitpid(process_, &status, 0);
  while (ended < 0 && errno == EINTR);
  process_ = -1;
  const std::string messages = last_lines(last_messages_, file_);
  const std::string quoted = messages.empty() ? "" : ": " + messages;
  if (ended < 0) return "the system does not say how ffmpeg ended" + quoted;
  if (WIFSIGNALED(status)) return "ffmpeg was killed by signal " + std::to_string(WTERMSIG(status)) + quoted;
  if (WEXITSTATUS(status) != 0)
    return messages.empty() ? "ffmpeg ended with exit code " + std::to_string(WEXITSTATUS(status)) : "ffmpeg" + quoted;
  return {};
}

std::string output_of_ffmpeg(const fs::path& file, const std::vector<std::string>& arguments) {
  Ffmpeg ffmpeg({.arguments = arguments, .file = file});
  std::vector<uint8_t> output;
  while (ffmpeg.read(output)) {
  }
  if (const std::string failure = ffmpeg.finish(); !failure.empty())
    throw run_failure(file.string() + ": " + failure, "check " + ffmpeg_program().string());
  return {output.begin(), output.end()};
}

std::vector<std::string> raw_frames(int64_t width, int64_t height, double fps) {
  const FrameRate rate = frame_rate(fps);
  return {"-f",          "rawvideo",
          "-pix_fmt",    "rgb24",
          "-video_size", std::to_string(width) + "x" + std::to_string(height),
          "-framerate",  std::to_string(rate.numerator) + "/" + std::to_string(rate.denominator),
          "-i",          "pipe:0"};
}

void throw_ffmpeg_failure(const fs::path& target, const std::string& failure) {
  const std::string reason = failure.empty() ? "ffmpeg ended before the last frame" : failure;
  const std::string cause = target.string() + " could not be written: " + reason;
  for (const int error : {ENOSPC, EDQUOT, EFBIG, EROFS})
    if (reason.find(std::strerror(error)) != std::string::npos)  // NOLINT(concurrency-mt-unsafe): reads a table
      models::throw_write_error(error, run_failure(cause, models::write_failure(target, error).remedy()));
  throw run_failure(cause, "try another --codec, another output format or another ffmpeg (SPARSEREEL_FFMPEG)");
}

}  // namespace sparsereel::app
