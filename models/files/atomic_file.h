// Output files that appear completely or not at all: AtomicFile writes a hidden file beside the target, and renames it
// to the target at the end. No torch.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "models/files/temporary.h"
#include "models/files/write_failure.h"

namespace sparsereel::models {

/// Throws Error if `path` is a folder, a device, a pipe, or a file without any write permission. Root gets the last
/// error too, although the system would let root write.
void check_target(const std::filesystem::path& path);

/// Writes all bytes. Returns 0, or the system's error number.
int write_all(int descriptor, const void* data, size_t bytes);

/// Flushes what any process wrote to a file or folder. Returns 0, or the system's error number. Also returns 0 if the
/// file system cannot flush.
int flush_to_disk(int descriptor);
int flush_to_disk(const std::filesystem::path& path);

/// Returns true for a file that may be replaced or removed.
using IsOwn = std::function<bool(const std::filesystem::path&)>;

/// Removes an ordinary file, or a symbolic link to one, if `is_own` returns true for it. Ignores errors. If another
/// process replaces the file meanwhile, the new file stays.
void remove_if(const std::filesystem::path& path, const IsOwn& is_own);

/// A file in the making. The caller fills its temporary file with write(), or opens the path temporary() and writes
/// there. commit() renames the temporary to the target. If the object is destroyed before commit(), for example by an
/// exception, the target stays as it was and the temporary is removed. If the target is a symbolic link, the file that
/// it points to is made or replaced. The new file takes the owner and permissions of the file that it replaces, if the
/// process may set them.
class AtomicFile {
 public:
  /// Creates an empty temporary. Throws Error naming the target if its folder is missing or not writable, if
  /// check_target() refuses it, or if its name is too long. So these errors appear before the work of a long run, not
  /// after it.
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();  // removes the temporary unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& target() const { return target_; }
  const std::filesystem::path& temporary() const { return temporary_->path(); }

  /// Appends. Throws Error naming the target and the reason (disk full, file size limit). A program that wants an Error
  /// instead of a signal for the file size limit (ulimit -f) must ignore SIGXFSZ.
  void write(const void* data, size_t bytes);

  /// Flushes the temporary to the disk (fsync) and closes it. Throws Error as write() does. Further calls do nothing.
  void complete();

  /// Completes the temporary and renames it to the target. Throws Error as write() does, leaving the target untouched.
  /// With `flushes_folder`, the new name is on the disk too; without, a power failure may bring the old file back.
  void commit(bool flushes_folder = true);

  /// Does what commit() does, but replaces only an ordinary file for which `is_own` returns true. If the target's name
  /// belongs to another file, returns false and leaves that file in its place. Keeps the replaced file for take_back()
  /// until this object is destroyed. Another process may take the target's name at any time, so this asks `is_own`
  /// again after the exchange. On a file system that cannot exchange two names, it cannot ask again, and the replaced
  /// file is lost at once.
  [[nodiscard]] bool place(const IsOwn& is_own);
  /// Undoes place(): puts the replaced file back, or removes the new one. If another file has replaced the new one
  /// since, that file stays. Does nothing if place() was not called.
  void take_back() noexcept;

 private:
  void take_permissions();
  void rename();
  bool is_placed(const std::filesystem::path& path) const;

  std::filesystem::path target_;
  std::optional<Temporary> temporary_;
  // The permission bits that complete() sets: those of the replaced file. Unset if the new file does not take them.
  std::optional<mode_t> mode_;
  int descriptor_ = -1;
  enum class Placed { no, new_file, exchanged } placed_ = Placed::no;
  struct {
    dev_t device;
    ino_t number;
  } new_file_ = {};                    // identifies the file that place() gave the target's name
  size_t written_ = 0, flushing_ = 0;  // bytes from write(), and how many of them are on their way to the disk
};

}  // namespace sparsereel::models
