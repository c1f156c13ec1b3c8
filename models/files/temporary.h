// Files and folders in the making, under hidden names beside their targets: what a killed process leaves of them, and
// names that a process keeps for itself. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace sparsereel::models {

/// `dir/.name.<pid>.partial.ext` for the target `dir/name.ext`: the extension is kept, so that FFmpeg can guess the
/// format. It is removed at the end, or when a signal ends the process, unless it is kept. As long as it lives it is
/// locked (flock), which the system undoes with the process, whatever ends that: one that is not is a leftover.
class Temporary {
 public:
  enum class Kind { file, folder };

  /// Creates it, empty. Throws Error naming the target where its folder is missing or not writable.
  Temporary(const std::filesystem::path& target, Kind kind);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// What is written to a file's is appended.
  int descriptor() const { return descriptor_; }
  /// It has become its target.
  void keep();

  /// "clip.mp4" of the name of a temporary, ".clip.1234.partial.mp4"; empty where it is no such name.
  static std::string target_of(const std::string& name);
  /// Removes all that are alive in this process, which is about to end.
  static void remove_all() noexcept;

 private:
  friend bool reserve(const std::filesystem::path& target, std::vector<std::unique_ptr<Temporary>>& kept);
  Temporary(std::filesystem::path path, int descriptor);
  /// Nothing where the name is taken, or another process took it for a leftover before it was locked.
  void create(const std::filesystem::path& target, Kind kind);
  void remember();
  void forget();

  std::filesystem::path path_;
  int descriptor_ = -1;  // it is locked through this one
};

/// Keeps the name for this process, as long as what is added to `kept` lives; false where another process keeps it.
/// Where the folder takes no file nothing is added, and where its file system knows no locks the name is nobody's.
bool reserve(const std::filesystem::path& target, std::vector<std::unique_ptr<Temporary>>& kept);

/// Removes what killed processes left of these files and of those beside them (checkpoint, latents, recipe: the same
/// name and more). What a process holds stays, and where the file system knows no locks all of it.
void remove_leftovers(const std::vector<std::filesystem::path>& targets);

}  // namespace sparsereel::models
