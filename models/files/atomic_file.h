// Output files that appear whole or not at all: written beside the target under another name, renamed at the end. No
// torch.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "models/files/temporary.h"
#include "models/files/write_failure.h"

namespace sparsereel::models {

/// Throws Error where something stands at `path` that is not to be written: a folder, a device or a pipe, or a file
/// without any write permission, which keeps root off too.
void check_target(const std::filesystem::path& path);

/// Writes all of it, or returns the system's error number; else 0.
int write_all(int descriptor, const void* data, size_t bytes);

/// Flushes a file or folder, whoever wrote it; returns the system's error number or 0, which it is too where the file
/// system cannot flush.
int flush_to_disk(int descriptor);
int flush_to_disk(const std::filesystem::path& path);

/// A file in the making. Its temporary is filled by write(), or by anybody who opens temporary() by path; commit()
/// makes it the target. Whatever happens before commit() (an exception, an early return, a full disk) leaves the target
/// as it was and no temporary behind. Where the target is a symbolic link, the file that it points to is made or
/// replaced. A file that is replaced leaves its owner and permissions to the new one, where the process may give those
/// away.
class AtomicFile {
 public:
  /// Creates the temporary, empty. Throws Error naming the target when its folder is missing or not writable, or when
  /// check_target() refuses the target, or its name is too long: before the work of a long run, not after it.
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();  // removes the temporary unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& target() const { return target_; }
  const std::filesystem::path& temporary() const { return temporary_->path(); }

  /// Appends. Throws Error naming the target and the reason (disk full, file size limit). A program that wants an Error
  /// and not a signal for the file size limit (ulimit -f) ignores SIGXFSZ.
  void write(const void* data, size_t bytes);

  /// Flushes the temporary to the disk (fsync) and renames it to the target. Throws Error as write() does; the target
  /// is then untouched.
  void commit();

 private:
  void take_permissions();

  std::filesystem::path target_;
  std::optional<Temporary> temporary_;
  std::optional<mode_t> mode_;  // of the file that is replaced, where the new one takes it
  int descriptor_ = -1;
  size_t written_ = 0, flushing_ = 0;  // bytes by write(), and of these on their way to the disk
};

}  // namespace sparsereel::models
