// Maps files into memory. If a mapped file becomes shorter, the process survives. No torch.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace sparsereel::models {

/// Maps an ordinary file read-only. Throws Error naming the file if it is missing or empty, is not an ordinary file, or
/// cannot be opened.
///
/// A file may become shorter while it is mapped: a download or a copy may overwrite it, or a network file system may
/// fail. Every thread then reads zeros in place of the lost part, and the process does not end with SIGBUS. The zeros
/// look like data, so call check_whole() after reading. This class installs a SIGBUS handler. A SIGBUS that comes from
/// no file of this class goes to the handler that was installed before.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Copies the bytes from `offset` on into `to`. Reads from the file, which needs no page faults and is about twice as
  /// fast as copying from the mapping. `end` is where the range ends that the caller reads in the near future. Any
  /// number of threads may call this. Throws the Error of check_whole() if the file ends too early or cannot be read.
  void read(size_t offset, std::span<std::byte> to, size_t end) const;
  /// Throws Error naming the file if it became shorter since it was opened, or if a part could not be read.
  void check_whole() const;

 private:
  [[noreturn]] void throw_lost() const;

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  int descriptor_ = -1;
  struct GuardedRange* range_ = nullptr;
};

}  // namespace sparsereel::models
