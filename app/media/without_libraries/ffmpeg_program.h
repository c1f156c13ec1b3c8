// Runs the ffmpeg program, for builds without FFmpeg's libraries. Internal to app/media.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sparsereel::app {

/// Returns the ffmpeg program: the one that $SPARSEREEL_FFMPEG names, or else the one on the PATH. Empty if there is
/// none.
std::filesystem::path ffmpeg_program();

/// Owns a file descriptor and closes it. A negative number stands for none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;

  int number() const { return number_; }
  void reset();

 private:
  int number_;
};

/// A running ffmpeg. It reads frames from write(), or the file `input`, and its output comes from read().
class Ffmpeg {
 public:
  struct Start {
    std::vector<std::string> arguments;  // after the program's name and the options for messages, which Ffmpeg adds
    std::filesystem::path file;          // the file that errors name
    int input = -1;      // the descriptor of a file that becomes /dev/stdin; -1: a pipe that write() fills
    int metadata = -1;   // a descriptor that becomes kMetadata; -1: none
    int sound = -1;      // a descriptor that becomes kSound; -1: none
    bool output = true;  // false: read() returns nothing
    std::optional<std::chrono::seconds> limit = {};  // ends ffmpeg this long after the start
  };
  static constexpr const char *kInput = "file:/dev/stdin", *kMetadata = "file:/dev/fd/3", *kSound = "file:/dev/fd/4";

  /// Throws Error if there is no ffmpeg, or if it cannot be started.
  explicit Ffmpeg(const Start& start);
  /// Kills ffmpeg if it still runs.
  ~Ffmpeg();
  Ffmpeg(const Ffmpeg&) = delete;
  Ffmpeg& operator=(const Ffmpeg&) = delete;

  /// Sends all bytes. Returns false if ffmpeg takes no more.
  bool write(std::span<const uint8_t> bytes);
  /// Waits for output of ffmpeg and appends it to `bytes`. Returns false at the end of the output, or if the time limit
  /// has passed.
  bool read(std::vector<uint8_t>& bytes);
  /// Closes the input and waits. Returns the reason why ffmpeg failed, with its last lines; empty if it succeeded.
  std::string finish();

  bool is_out_of_time() const { return out_of_time_; }

 private:
  /// Waits until one of poll()'s events `input` or `output` occurs, and sets both arguments to the events that have
  /// occurred. 0 stands for no event; if both are 0, waits until ffmpeg closes its messages. Keeps ffmpeg's messages
  /// meanwhile. If the time limit has passed, kills ffmpeg and returns false.
  bool wait(short& input, short& output);
  void keep_messages();
  void kill();
  std::string how_it_ended();

  std::filesystem::path file_;
  pid_t process_ = -1;
  Descriptor input_, output_, messages_;
  std::optional<std::chrono::steady_clock::time_point> end_;
  std::string last_messages_;
  bool out_of_time_ = false;
};

/// Runs ffmpeg to its end. Returns what it wrote. Throws Error if it fails.
std::string output_of_ffmpeg(const std::filesystem::path& file, const std::vector<std::string>& arguments);

/// Returns the arguments with which ffmpeg reads RGB frames from its input.
std::vector<std::string> raw_frames(int64_t width, int64_t height, double fps);

/// Throws Error for a file that ffmpeg could not write. Throws DiskError if the reason is the disk. If `failure` is
/// empty, the error says that ffmpeg ended before it had all frames.
[[noreturn]] void throw_ffmpeg_failure(const std::filesystem::path& target, const std::string& failure);

}  // namespace sparsereel::app
