// The places that a model is read from, so that nothing is written there. No torch.
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
  ModelFiles() = default;  // protects nothing
  explicit ModelFiles(const Checkpoint& folder);

  /// Returns true if writing to `path` would replace a file of the model, also through links or another name. Also
  /// returns true if it would add a file to the folder of a component, where the file might be taken for part of the
  /// model. The rest of the model's folder is free.
  bool touched_by(const std::filesystem::path& path) const;

 private:
  std::vector<std::filesystem::path> places_;  // index and components' folders, links resolved
  std::set<std::pair<dev_t, ino_t>> files_;    // all files in them, by device and inode
};

}  // namespace sparsereel::models
