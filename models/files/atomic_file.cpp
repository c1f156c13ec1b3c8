// Writes atomic output files with POSIX calls.
#include "models/files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// Renames a file with flags of renameat2().
bool renamed(const fs::path& from, const fs::path& to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0;
}

/// Gives a file a name that no file has. Also works on file systems whose rename has no flags.
bool renamed_to_free_name(const fs::path& from, const fs::path& to) {
  if (renamed(from, to, RENAME_NOREPLACE)) return true;
  return errno == EINVAL && ::link(from.c_str(), to.c_str()) == 0 && ::unlink(from.c_str()) == 0;
}

enum class Owner { none, own, other };  // none: no file has the name

/// Returns whose file has a name. A file that `is_own` cannot read belongs to somebody else.
Owner owner_of(const fs::path& path, const IsOwn& is_own, bool accepts_links = false) {
  struct stat file = {};
  if (::lstat(path.c_str(), &file) != 0) return errno == ENOENT ? Owner::none : Owner::other;
  if (!S_ISREG(file.st_mode) && !(accepts_links && S_ISLNK(file.st_mode))) return Owner::other;
  try {
    return is_own(path) ? Owner::own : Owner::other;
  } catch (const Error&) {
    return Owner::other;
  }
}

}  // namespace

void check_target(const fs::path& asked) {
  std::error_code error;
  const fs::file_status status = fs::status(asked, error);
  const auto refused = [&](const std::string& problem, const std::string& remedy) {
    return Error(ErrorKind::bad_input, "cannot write " + asked.string() + ": " + problem, remedy,
                 {.file = asked.string()});
  };
  if (status.type() == fs::file_type::none) throw_write_failure(asked, error.value());  // for example links in a circle
  if (fs::is_directory(status) || !asked.has_filename()) throw refused("it is a folder", "give the name of a file");
  if (!fs::exists(status)) return;
  if (!fs::is_regular_file(status)) throw refused("it is a device or a pipe", "give the name of an ordinary file");
  constexpr fs::perms kWrite = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  if ((status.permissions() & kWrite) == fs::perms::none)
    throw refused("it is read-only", "choose another name, or 'chmod u+w' it if it may be replaced");
}

int write_all(int descriptor, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, from, std::min<size_t>(bytes, SSIZE_MAX));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    from += written;
    bytes -= static_cast<size_t>(written);
  }
  return 0;
}

int flush_to_disk(int descriptor) {
  return ::fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

int flush_to_disk(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = flush_to_disk(descriptor);
  ::close(descriptor);
  return error;
}

void remove_if(const fs::path& path, const IsOwn& is_own) {
  const auto is_own_now = [&](const fs::path& file) {
    return owner_of(file, is_own, /*accepts_links=*/true) == Owner::own;
  };
  if (!is_own_now(path)) return;
  std::optional<Temporary> aside;
  try {
    aside.emplace(path, Temporary::Kind::file);
  } catch (const Error&) {  // the disk may be full; removing a file needs no space
    ::unlink(path.c_str());
    return;
  }
  // Take the file's name away before asking again, because another process may replace the file at any time.
  if (!renamed(path, aside->path(), 0) || is_own_now(aside->path())) return;
  renamed_to_free_name(aside->path(), path);
  aside->keep();
}

AtomicFile::AtomicFile(const fs::path& target) {
  check_target(target);
  target_ = behind_links(target);
  // Temporary shortens its own name if needed. Without this check, a name that is too long would fail only at the
  // rename.
  if (target_.filename().native().size() > NAME_MAX) throw_write_failure(target_, ENAMETOOLONG);
  temporary_.emplace(target_, Temporary::Kind::file);
  // complete() closes this duplicate. The temporary's own descriptor stays open and holds the lock.
  descriptor_ = ::fcntl(temporary_->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (descriptor_ < 0) throw_write_failure(target_, errno);
  take_permissions();
}

void AtomicFile::take_permissions() {
  struct stat old {};
  if (::stat(target_.c_str(), &old) != 0 || ::fchown(descriptor_, old.st_uid, old.st_gid) != 0) return;
  constexpr mode_t kOwnerMustWrite = 0600;  // complete() sets the final mode
  const mode_t mode = old.st_mode & 0777;
  if (::fchmod(descriptor_, mode | kOwnerMustWrite) == 0) mode_ = mode;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AtomicFile::write(const void* data, size_t bytes) {
  constexpr size_t kFlushed = size_t{16} << 20;
  if (const int error = write_all(descriptor_, data, bytes)) throw_write_failure(target_, error);
  written_ += bytes;
  if (written_ - flushing_ < kFlushed) return;
  // Starts writing to the disk now, so that commit() waits only for the rest. It is a hint, so errors are ignored.
  ::sync_file_range(descriptor_, static_cast<off_t>(flushing_), static_cast<off_t>(written_ - flushing_),
                    SYNC_FILE_RANGE_WRITE);
  flushing_ = written_;
}

void AtomicFile::complete() {
  if (descriptor_ < 0) return;
  if (mode_ && ::fchmod(descriptor_, *mode_) != 0) throw_write_failure(target_, errno);
  if (const int error = flush_to_disk(descriptor_)) throw_write_failure(target_, error);
  // Some file systems (quotas, network) report a failed write only here.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) throw_write_failure(target_, errno);
}

void AtomicFile::rename() {
  if (::rename(temporary().c_str(), target_.c_str()) != 0) throw_write_failure(target_, errno);
  temporary_->keep();
}

void AtomicFile::commit(bool flushes_folder) {
  complete();
  rename();
  // Errors are ignored: the new file is complete even if its name is not on the disk yet.
  if (flushes_folder) flush_to_disk(target_.parent_path());
}

bool AtomicFile::place(const IsOwn& is_own) {
  complete();
  struct stat file = {};
  if (::lstat(temporary().c_str(), &file) == 0) new_file_ = {.device = file.st_dev, .number = file.st_ino};
  bool is_new = false, is_exchanged = false, is_gone = false;
  do {
    is_new = renamed(temporary(), target_, RENAME_NOREPLACE);
    if (is_new) break;
    const bool is_taken = errno == EEXIST;
    // Ask before the exchange, too: a file that gets the temporary's name is removed if this process is killed.
    if (owner_of(target_, is_own) == Owner::other) return false;
    is_exchanged = renamed(temporary(), target_, RENAME_EXCHANGE);
    is_gone = is_taken && !is_exchanged && errno == ENOENT;  // another process removed the file that had the name
  } while (is_gone);
  placed_ = is_exchanged ? Placed::exchanged : Placed::new_file;
  if (is_new) temporary_->keep();
  if (!is_new && !is_exchanged) rename();  // the file system cannot exchange files
  if (is_exchanged && owner_of(temporary(), is_own) != Owner::own) {
    take_back();
    return false;
  }
  flush_to_disk(target_.parent_path());
  return true;
}

/// Returns true for the file to which place() gave the target's name.
bool AtomicFile::is_placed(const fs::path& path) const {
  struct stat file = {};
  return ::lstat(path.c_str(), &file) == 0 && file.st_dev == new_file_.device && file.st_ino == new_file_.number;
}

void AtomicFile::take_back() noexcept {
  const Placed placed = std::exchange(placed_, Placed::no);
  if (placed == Placed::new_file) {
    try {
      remove_if(target_, [this](const fs::path& path) { return is_placed(path); });
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory; the new file stays
    }
  }
  if (placed != Placed::exchanged) return;
  if (renamed(temporary(), target_, RENAME_EXCHANGE)) {
    if (!is_placed(temporary())) renamed(temporary(), target_, RENAME_EXCHANGE);
  } else if (errno == ENOENT && renamed_to_free_name(temporary(), target_)) {
    temporary_->keep();  // somebody has removed the new file, and the replaced one has its name again
  }
}

}  // namespace sparsereel::models
