// Errors of files that cannot be written, and where a path leads. No torch.
#pragma once

#include <filesystem>

#include "hilbert/error.h"

namespace sparsereel::models {

/// A file could not be written for a reason that the next file on that disk would meet too: it is full, read-only or
/// broken.
class DiskError : public Error {
 public:
  using Error::Error;
};

/// Throws DiskError where the system's error number is such a reason, else a plain Error.
[[noreturn]] void throw_write_error(int system_error, const Error& error);

/// What went wrong when `target` was written and what to do about it, of the system's error number.
Error write_failure(const std::filesystem::path& target, int system_error);

/// Throws write_failure(), as throw_write_error() does.
[[noreturn]] void throw_write_failure(const std::filesystem::path& target, int system_error);

/// Where a chain of symbolic links leads, which need not exist; absolute. Of a circle, one of its links.
std::filesystem::path behind_links(const std::filesystem::path& path);

}  // namespace sparsereel::models
