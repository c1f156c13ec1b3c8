// The files and folders from which a model is read, so that no output is written there. No torch.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

class ModelFiles {
 public:
  ModelFiles() = default;  // touched_by() is always false
  explicit ModelFiles(const Checkpoint& folder);

  /// Returns true if writing to `path` would replace a file of the model, also through links or another name of the
  /// file. Also returns true if it would add a file to a component's folder, where the file might be taken for a part
  /// of the model. Other places in the model's folder may be written.
  bool touched_by(const std::filesystem::path& path) const;

 private:
  std::vector<std::filesystem::path> places_;  // index and components' folders, with links resolved
  std::set<std::pair<dev_t, ino_t>> files_;    // all files in these places, by device and inode
};

}  // namespace sparsereel::models
