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

  /// Returns true if writing to `path` would replace one of the model's files, also through links or another name, or
  /// add one to a component's folder, where it might be taken for the model's. The rest of the model's folder is free.
  bool touched_by(const std::filesystem::path& path) const;

 private:
  std::vector<std::filesystem::path> places_;  // index and components' folders, links resolved
  std::set<std::pair<dev_t, ino_t>> files_;    // all files in them, by device and inode
};

}  // namespace sparsereel::models
