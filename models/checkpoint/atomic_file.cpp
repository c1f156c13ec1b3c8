// Atomic output files over POSIX calls, and the list of temporaries that a signal handler may remove.
#include "models/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <regex>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// One live temporary. Nodes are pushed on a list that only grows and are used again, so that a signal handler can walk
/// it at any moment without a lock and without reading freed memory.
struct Registration {
  std::atomic<bool> taken = false;
  std::atomic<bool> live = false;
  char path[PATH_MAX] = {};
  Registration* next = nullptr;
};
std::atomic<Registration*> registrations = nullptr;

Registration* register_temporary(const std::string& path) {
  Registration* node = registrations.load();
  for (; node != nullptr; node = node->next) {
    bool free = false;
    if (node->taken.compare_exchange_strong(free, true)) break;
  }
  if (node == nullptr) {
    node = new Registration;
    node->taken = true;
    node->next = registrations.load();
    while (!registrations.compare_exchange_weak(node->next, node)) {
    }
  }
  node->path[path.copy(node->path, PATH_MAX - 1)] = '\0';
  node->live = true;
  return node;
}

void unregister_temporary(void* registration) {
  auto* node = static_cast<Registration*>(registration);
  node->live = false;
  node->taken = false;
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

Error write_failure(const fs::path& target, int error) {
  const std::string cause = "cannot write " + target.string() + ": " + reason(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return run_failure(cause, "free some space on that disk, or choose another folder");
    case EFBIG:
      return run_failure(cause, "raise the file size limit (ulimit -f), or choose another file system");
    case EACCES:
    case EPERM:
    case EROFS:
      return bad_input(cause, "choose a folder that you may write to");
    case ENOENT:
    case ENOTDIR:
      return bad_input(cause, "create the folder " + target.parent_path().string() + " first, or choose another");
    case ENAMETOOLONG:
      return bad_input(cause, "choose a shorter file name");
    default:
      return run_failure(cause, "check the disk, or choose another folder");
  }
}

[[noreturn]] void throw_write_failure(const fs::path& target, int error) {
  throw_write_error(error, write_failure(target, error));
}

/// The file to be replaced: an existing symbolic link stays, what it points to is replaced. Anything else than a file
/// is refused.
fs::path resolve_target(const fs::path& asked) {
  std::error_code error;
  fs::path target = fs::is_symlink(asked, error) ? fs::weakly_canonical(asked, error) : fs::absolute(asked, error);
  if (error) throw_write_failure(asked, error.value());
  const fs::file_status status = fs::status(target, error);
  if (fs::is_directory(status) || !asked.has_filename())
    throw bad_input("cannot write " + asked.string() + ": it is a folder", "give the name of a file");
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw bad_input("cannot write " + asked.string() + ": it is a device or a pipe",
                    "give the name of an ordinary file");
  return target;
}

/// `.name.<pid>.partial.ext`; attempts after the first (a leftover of a killed process that had the same id) get a
/// number.
fs::path temporary_name(const fs::path& target, int attempt) {
  std::ostringstream suffix;
  suffix << "." << getpid();
  if (attempt > 0) suffix << "-" << attempt;
  suffix << ".partial" << target.extension().string();
  const size_t room = NAME_MAX - std::min<size_t>(NAME_MAX, suffix.str().size());
  std::string name(1, '.');
  name += target.stem().string();
  name.resize(std::min(name.size(), room));
  return target.parent_path() / (name + suffix.str());
}

/// Flushes whatever was written to the file, through any descriptor.
int flush_to_disk(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return error == EINVAL || error == ENOTSUP ? 0 : error;  // file systems that cannot flush
}

}  // namespace

void throw_write_error(int system_error, const Error& error) {
  if (system_error == ENOSPC || system_error == EDQUOT || system_error == EROFS || system_error == EIO)
    throw DiskError(error.exit_code(), error.what(), error.remedy());
  throw error;
}

AtomicFile::AtomicFile(const fs::path& target) : target_(resolve_target(target)) {
  // The temporary's name is cut to fit, so that only the rename at the end would see it.
  if (target_.filename().native().size() > NAME_MAX) throw_write_failure(target_, ENAMETOOLONG);
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts && descriptor_ < 0; ++attempt) {
    temporary_ = temporary_name(target_, attempt);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) throw_write_failure(target_, errno);
  registration_ = register_temporary(temporary_.string());
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (registration_ == nullptr) return;
  ::unlink(temporary_.c_str());
  unregister_temporary(registration_);
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, from, std::min<size_t>(bytes, SSIZE_MAX));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_write_failure(target_, errno);
    from += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  // Some file systems (quotas, network) report a failed write only here.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) throw_write_failure(target_, errno);
  if (const int error = flush_to_disk(temporary_)) throw_write_failure(target_, error);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw_write_failure(target_, errno);
  unregister_temporary(std::exchange(registration_, nullptr));
  flush_to_disk(target_.parent_path());  // the rename itself; the file is whole either way
}

std::string AtomicFile::target_of(const std::string& name) {
  static const std::regex temporary(R"(\.(.+)\.\d+(-\d+)?\.partial(\.[^.]+)?)");
  std::smatch parts;
  return std::regex_match(name, parts, temporary) ? parts.str(1) + parts.str(3) : "";
}

void AtomicFile::remove_all_temporaries() noexcept {
  for (Registration* node = registrations.load(); node != nullptr; node = node->next) {
    if (node->live) ::unlink(node->path);
  }
}

}  // namespace sparsereel::models
