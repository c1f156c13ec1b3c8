// Follows the manifest of another process while that process writes it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::app::sets {

/// A manifest that a card's process writes, held open: it is the same file wherever it is moved.
class ManifestReader {
 public:
  explicit ManifestReader(std::filesystem::path path);
  ~ManifestReader();
  ManifestReader(ManifestReader&& other) noexcept;
  ManifestReader& operator=(ManifestReader&&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Opens the file once the card has it and before the card writes: what it holds then is from earlier runs. Throws
  /// Error if it is gone.
  void begin();
  /// Returns the whole lines that are new. Throws Error if the file became shorter.
  std::string new_lines();
  /// The error to throw for a manifest that `what` befell.
  Error changed(const std::string& what) const;

 private:
  off_t size() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  off_t read_ = 0;  // bytes that count already
};

}  // namespace sparsereel::app::sets
