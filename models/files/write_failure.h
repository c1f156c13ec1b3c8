// Errors for files that cannot be written, and the targets of links. No torch.
#pragma once

#include <filesystem>

#include "hilbert/error.h"

namespace sparsereel::models {

/// A write failed for a reason that will also stop the next file on that disk: the disk is full, read-only or broken.
class DiskError : public Error {
 public:
  using Error::Error;
};

/// Throws DiskError if the system's error number has such a reason, or else a plain Error.
[[noreturn]] void throw_write_error(int system_error, const Error& error);

/// Returns the cause and remedy for a failed write to `target`, by the system's error number.
Error write_failure(const std::filesystem::path& target, int system_error);

/// Throws write_failure() through throw_write_error().
[[noreturn]] void throw_write_failure(const std::filesystem::path& target, int system_error);

/// Returns the absolute path behind a chain of symbolic links, which need not exist. If the links form a circle,
/// returns one of them.
std::filesystem::path behind_links(const std::filesystem::path& path);

}  // namespace sparsereel::models
