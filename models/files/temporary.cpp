// Creates, locks and removes temporaries.
#include "models/files/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "models/files/write_failure.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// The temporaries of this process. When a signal ends the process, one thread removes them. This object is never
/// destroyed, because that thread may still use it after main() has returned.
struct LiveTemporaries {
  std::mutex mutex;
  std::set<fs::path> paths;
};

LiveTemporaries& live_temporaries() {
  static auto& live = *new LiveTemporaries;
  return live;
}

/// Stands for the process id in the names of reservations, which must be the same in all processes.
constexpr pid_t kAnyProcess = 0;

/// Returns `.name.<pid>.partial.ext`. If a killed process with the same id left a file of this name, the caller tries
/// again with attempt 1, 2, .., which puts the number after the id.
fs::path temporary_name(const fs::path& target, pid_t process, int attempt) {
  std::ostringstream suffix;
  suffix << "." << process;
  if (attempt > 0) suffix << "-" << attempt;
  suffix << ".partial" << target.extension().string();
  const size_t room = NAME_MAX - std::min<size_t>(NAME_MAX, suffix.str().size());
  std::string name(1, '.');
  name += target.stem().string();
  name.resize(std::min(name.size(), room));
  return target.parent_path() / (name + suffix.str());
}

enum class Lock { ours, others, unknown };

/// Tries to lock an open file. Returns `ours` if that succeeds, and `unknown` if the file system has no locks. Returns
/// `others` if another process holds the lock, or if `path` no longer names the opened file.
Lock lock(int descriptor, const fs::path& path) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Lock::others : Lock::unknown;
  struct stat opened = {}, named = {};
  const bool same = ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  return same ? Lock::ours : Lock::others;
}

/// Opens a path to lock it. Network file systems lock only a descriptor that is open for writing, so it tries that
/// first. Folders and other users' files can only be opened for reading.
int open_to_lock(const fs::path& path, int flags) {
  const int common = flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int descriptor = ::open(path.c_str(), O_RDWR | common, 0666);
  return descriptor >= 0 ? descriptor : ::open(path.c_str(), O_RDONLY | common, 0666);
}

/// Removes a file, or a folder with its content. Returns false if something could not be removed. fs::remove_all()
/// opens even a plain file, which fails if the process has no free descriptor; so fs::remove() comes first.
bool remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fs::remove_all(path, error);
  return !error;
}

void remove_unless_held(const fs::path& path) {
  std::error_code ignored;
  const fs::file_type type = fs::symlink_status(path, ignored).type();
  if (type != fs::file_type::regular && type != fs::file_type::directory) return;
  const int descriptor = open_to_lock(path, 0);
  if (descriptor < 0) return;
  if (lock(descriptor, path) == Lock::ours) remove_tree(path);
  ::close(descriptor);
}

/// Returns true if `ours` contains the name, or the name's beginning before one of its dots.
bool is_of(const std::string& name, const std::set<std::string>& ours) {
  if (ours.contains(name)) return true;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    if (ours.contains(name.substr(0, dot))) return true;
  return false;
}

}  // namespace

Temporary::Temporary(const fs::path& target, Kind kind) {
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts && descriptor_ < 0; ++attempt) {
    path_ = temporary_name(target, ::getpid(), attempt);
    create(target, kind);
  }
  if (descriptor_ < 0) throw_write_failure(target, EEXIST);
  remember();
}

Temporary::Temporary(fs::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
  remember();
}

void Temporary::create(const fs::path& target, Kind kind) {
  if (kind == Kind::folder) {
    const bool made = ::mkdir(path_.c_str(), 0777) == 0;
    if (made) descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (made && descriptor_ < 0 && errno == ENOENT) return;  // another process removed the folder before it was locked
  } else {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  }
  if (descriptor_ < 0 && errno != EEXIST) throw_write_failure(target, errno);
  if (descriptor_ >= 0 && lock(descriptor_, path_) == Lock::others) ::close(std::exchange(descriptor_, -1));
}

Temporary::~Temporary() {
  if (path_.empty()) return;
  const bool removed = remove_tree(path_);
  forget();
  // Closing releases the lock. By then the file is gone, so nobody who gets the lock can take it for a leftover.
  if (descriptor_ >= 0) ::close(descriptor_);
  // A second attempt: listing a folder needs a descriptor, and close() has just freed one.
  if (!removed) remove_tree(path_);
}

void Temporary::keep() {
  forget();
  path_.clear();
  ::close(std::exchange(descriptor_, -1));
}

void Temporary::remember() {
  LiveTemporaries& live = live_temporaries();
  const std::lock_guard lock(live.mutex);
  live.paths.insert(path_);
}

void Temporary::forget() {
  LiveTemporaries& live = live_temporaries();
  const std::lock_guard lock(live.mutex);
  live.paths.erase(path_);
}

std::string Temporary::target_of(const std::string& name) {
  static const std::regex temporary(R"(\.(.+)\.\d+(-\d+)?\.partial(\.[^.]+)?)");
  std::smatch parts;
  return std::regex_match(name, parts, temporary) ? parts.str(1) + parts.str(3) : "";
}

void Temporary::remove_all() noexcept {
  LiveTemporaries& live = live_temporaries();
  const std::lock_guard lock(live.mutex);
  for (const fs::path& path : live.paths) {
    // Another thread may still add files to a folder, so one attempt may not be enough. Once the folder is gone, that
    // thread fails, and the destructor of its Temporary waits for this lock.
    constexpr int kAttempts = 100;
    for (int attempt = 0; attempt < kAttempts && !remove_tree(path); ++attempt) continue;
  }
}

bool reserve(const fs::path& target, std::vector<std::unique_ptr<Temporary>>& kept) {
  std::error_code ignored;
  fs::path path = temporary_name(fs::absolute(target, ignored), kAnyProcess, 0);
  const int descriptor = open_to_lock(path, O_CREAT);
  if (descriptor < 0) return true;
  if (lock(descriptor, path) == Lock::others) {
    ::close(descriptor);
    return false;
  }
  kept.push_back(std::unique_ptr<Temporary>(new Temporary(std::move(path), descriptor)));
  return true;
}

void remove_leftovers(const std::vector<fs::path>& targets) {
  std::map<fs::path, std::set<std::string>> names;  // by folder
  for (const fs::path& target : targets) {
    if (target.empty()) continue;
    std::error_code ignored;
    const fs::path file = fs::absolute(target.has_filename() ? target : target.parent_path(), ignored);
    // A video that was written through a symbolic link has its recipe beside the link. So leftovers are removed both
    // there and beside the file to which the link points.
    for (const fs::path& each : {file, behind_links(file)}) names[each.parent_path()].insert(each.filename().string());
  }
  for (const auto& [folder, ours] : names) {
    std::error_code error;
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (const std::string target = Temporary::target_of(entry.path().filename().string());
          !target.empty() && is_of(target, ours))
        leftovers.push_back(entry.path());
    for (const fs::path& leftover : leftovers) remove_unless_held(leftover);
  }
}

}  // namespace sparsereel::models
