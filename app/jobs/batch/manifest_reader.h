// Follows the manifest of another process while that process writes it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::app::sets {

/// Reads a manifest that a GPU's process writes. The file stays open, so that all lines come from the same file even if
/// that file is moved.
class ManifestReader {
 public:
  explicit ManifestReader(std::filesystem::path path);
  ~ManifestReader();
  ManifestReader(ManifestReader&& other) noexcept;
  ManifestReader& operator=(ManifestReader&&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Opens the file, and skips the lines that are already there: they are from earlier runs. Call it when the GPU's
  /// process has created the file but has not written a line yet. Throws Error if the file is gone.
  void begin();
  /// Returns the complete lines that were added since the last call. Throws Error if the file became shorter.
  std::string new_lines();
  /// Returns the error for a manifest with the problem `what`: "was moved or removed".
  Error changed(const std::string& what) const;

 private:
  off_t size() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  off_t read_ = 0;  // bytes read so far
};

}  // namespace sparsereel::app::sets
