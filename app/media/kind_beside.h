// Files that lie beside a video because its format cannot hold them: the recipe and the sound.
#pragma once

#include <filesystem>

#include "models/files/atomic_file.h"

namespace sparsereel::app {

/// A kind of file beside a video. Users do not name these files, so each may replace only an older file of its kind.
struct KindBeside {
  const char* content;  // "sound"
  const char* without;  // the option for a video without such a file
  /// Returns true if this program wrote the file.
  bool (*is_own)(const std::filesystem::path& file);

  /// Checks that such a file may be written to this path. Throws Error.
  void check(const std::filesystem::path& path) const;
  /// Places the file with AtomicFile::place(). Throws Error, and leaves the folder as it was, if another program's file
  /// took the name since check().
  void place(models::AtomicFile& file) const;
  /// Removes an older file of this kind, and no other file.
  void remove(const std::filesystem::path& path) const;
};

}  // namespace sparsereel::app
