// Where a model is read from, so that nothing is written there. No torch.
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
  ModelFiles() = default;  // no model's: none
  explicit ModelFiles(const Checkpoint& folder);

  /// Whether a file that is written to `path` would replace one of the model's, behind links or by another name too, or
  /// lie in a component's folder, where it might be taken for one. The rest of the model's folder is free.
  bool touched_by(const std::filesystem::path& path) const;

 private:
  std::vector<std::filesystem::path> places_;  // its index and its components' folders, without links
  std::set<std::pair<dev_t, ino_t>> files_;    // in them
};

}  // namespace sparsereel::models
