// Temporary files and folders with hidden names beside their targets. Also removes temporaries that killed processes
// left, and reserves names for a process. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace sparsereel::models {

/// A temporary `dir/.name.<pid>.partial.ext` for the target `dir/name.ext`. It keeps the extension, so that FFmpeg can
/// guess the format. The destructor removes it unless keep() was called; it is also removed if a signal ends the
/// process. It is locked (flock) during its lifetime. The system releases the lock however the process ends, so an
/// unlocked temporary is one that a killed process left.
class Temporary {
 public:
  enum class Kind { file, folder };

  /// Creates the temporary, empty. Throws Error naming the target if its folder is missing or not writable.
  Temporary(const std::filesystem::path& target, Kind kind);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the temporary's open descriptor. A file is open in append mode.
  int descriptor() const { return descriptor_; }
  /// Stops the destructor from removing the temporary. Call this after renaming it to its target.
  void keep();

  /// Returns the target's name: "clip.mp4" for ".clip.1234.partial.mp4". Empty if `name` is not the name of a
  /// temporary.
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

/// Reserves the target's name for this process by adding an object to `kept`. The name stays reserved until that object
/// is destroyed. Returns false if another process has reserved the name. If the folder is not writable, it adds nothing
/// and returns true. On a file system without locks, the name is not protected.
bool reserve(const std::filesystem::path& target, std::vector<std::unique_ptr<Temporary>>& kept);

/// Removes temporaries that killed processes left for these files, and for files beside them whose names begin with a
/// target's name and a dot (checkpoint, latents, recipe). It keeps temporaries that a process has locked, and removes
/// nothing on file systems without locks.
void remove_leftovers(const std::vector<std::filesystem::path>& targets);

}  // namespace sparsereel::models
