// Errors for files that cannot be written. Also finds the targets of symbolic links. No torch.
#pragma once

#include <filesystem>

#include "hilbert/error.h"

namespace sparsereel::models {

/// A write failed for a reason that will also stop the next file on that disk: the disk is full, read-only or broken.
class DiskError : public Error {
 public:
  using Error::Error;
};

/// Throws `error`, as a DiskError if the system's error number means a full, read-only or broken disk.
[[noreturn]] void throw_write_error(int system_error, const Error& error);

/// Returns the Error for a failed write to `target`, with the cause and remedy for the system's error number.
Error write_failure(const std::filesystem::path& target, int system_error);

/// Throws write_failure() through throw_write_error().
[[noreturn]] void throw_write_failure(const std::filesystem::path& target, int system_error);

/// Follows symbolic links, and returns the absolute path that the last one names; that path need not exist. If the
/// links form a circle, returns one of them.
std::filesystem::path behind_links(const std::filesystem::path& path);

}  // namespace sparsereel::models
