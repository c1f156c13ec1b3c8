// Files and folders in the making, under hidden names beside their targets. Also handles leftovers of killed processes,
// and names that a process reserves. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace sparsereel::models {

/// A temporary `dir/.name.<pid>.partial.ext` for the target `dir/name.ext`. It keeps the extension, so that FFmpeg can
/// guess the format. It is removed at the end, or when a signal ends the process, unless keep() was called. It is
/// locked (flock) during its lifetime. The system releases the lock however the process ends, so an unlocked temporary
/// is a leftover.
class Temporary {
 public:
  enum class Kind { file, folder };

  /// Creates the temporary, empty. Throws Error naming the target if its folder is missing or not writable.
  Temporary(const std::filesystem::path& target, Kind kind);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the open temporary. Writes to a file are appended.
  int descriptor() const { return descriptor_; }
  /// Keeps the temporary at the end. Call this when it has become its target.
  void keep();

  /// Returns "clip.mp4" for the temporary ".clip.1234.partial.mp4"; empty for other names.
  static std::string target_of(const std::string& name);
  /// Removes all temporaries of this process, which is about to end.
  static void remove_all() noexcept;

 private:
  friend bool reserve(const std::filesystem::path& target, std::vector<std::unique_ptr<Temporary>>& kept);
  Temporary(std::filesystem::path path, int descriptor);
  /// Tries to create the temporary. Creates nothing if the name is taken, or if another process removed the temporary
  /// as a leftover before it was locked.
  void create(const std::filesystem::path& target, Kind kind);
  void remember();
  void forget();

  std::filesystem::path path_;
  int descriptor_ = -1;  // holds the lock
};

/// Reserves the target's name for this process while the object added to `kept` lives. Returns false if another process
/// holds it. Adds nothing if the folder accepts no file. Without locks in the file system, the name is not protected.
bool reserve(const std::filesystem::path& target, std::vector<std::unique_ptr<Temporary>>& kept);

/// Removes what killed processes left of these files and of the files beside them whose names begin alike (checkpoint,
/// latents, recipe). Temporaries that a process holds stay, and so does everything on file systems without locks.
void remove_leftovers(const std::vector<std::filesystem::path>& targets);

}  // namespace sparsereel::models
