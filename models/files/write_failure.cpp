// Chooses causes and remedies by the system's error number.
#include "models/files/write_failure.h"

#include <cerrno>
#include <string>
#include <system_error>

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

Error write_failure(const fs::path& target, int error) {
  const std::string cause = "cannot write " + target.string() + ": " + reason(error);
  const auto refused = [&](const std::string& remedy) {
    return Error(ErrorKind::bad_input, cause, remedy, {.file = target.string()});
  };
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return run_failure(cause, "free some space on that disk, or choose another folder");
    case EFBIG:
      return run_failure(cause, "raise the file size limit (ulimit -f), or choose another file system");
    case EACCES:
    case EPERM:
    case EROFS:
      return refused("choose a folder that you may write to");
    case ENOTDIR:
      return refused("choose another folder: a part of this path is a file, not a folder");
    case ELOOP:
      return refused("remove that link, which leads back to itself, or choose another name");
    case ENOENT:
      return refused("create the folder " + target.parent_path().string() + " first, or choose another");
    case ENAMETOOLONG:
      return refused("choose a shorter file name");
    default:
      return run_failure(cause, "check the disk, or choose another folder");
  }
}

void throw_write_failure(const fs::path& target, int error) {
  throw_write_error(error, write_failure(target, error));
}

void throw_write_error(int system_error, const Error& error) {
  if (system_error == ENOSPC || system_error == EDQUOT || system_error == EROFS || system_error == EIO)
    throw DiskError(error.kind(), error.what(), error.remedy());
  throw error;
}

fs::path behind_links(const fs::path& path) {
  constexpr int kMostLinks = 40;  // the kernel's own limit
  std::error_code ignored;
  fs::path target = fs::absolute(path, ignored);
  for (int links = 0; links < kMostLinks && fs::is_symlink(fs::symlink_status(target, ignored)); ++links)
    target = target.parent_path() / fs::read_symlink(target, ignored);
  return target;
}

}  // namespace sparsereel::models
