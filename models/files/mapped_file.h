// A file in memory that survives what becomes of it on disk. No torch.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace sparsereel::models {

/// Maps an ordinary file, read-only. Throws Error naming the file where it is missing, empty, no ordinary file, or
/// cannot be opened.
///
/// A file may get shorter while it is mapped: a download, a copy over it, a network file system that fails. What is
/// gone reads as zeros then, in every thread, where the system would end the process with SIGBUS. Whoever has read asks
/// check_whole(). The handler of SIGBUS that this needs passes on what is not about such a file.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Throws Error naming the file where it got shorter since it was opened, or a part could not be read.
  void check_whole() const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  int descriptor_ = -1;
  struct GuardedRange* range_ = nullptr;
};

}  // namespace sparsereel::models
