// Maps files into memory. A mapped file that becomes shorter does not end the process. No torch.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace sparsereel::models {

/// Maps an ordinary file read-only. Throws Error naming the file if it is missing, empty, no ordinary file, or cannot
/// be opened.
///
/// A file may become shorter while it is mapped: by a download, a copy over it, or a failing network file system. The
/// lost part then reads as zeros in every thread, instead of ending the process with SIGBUS. Call check_whole() after
/// reading. The SIGBUS handler for this passes on signals that do not concern such a file.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Throws Error naming the file if it became shorter since it was opened, or a part could not be read.
  void check_whole() const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  int descriptor_ = -1;
  struct GuardedRange* range_ = nullptr;
};

}  // namespace sparsereel::models
