// Lists the models in a folder: which can run, with which files, and by which command.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "models/store/configs/candidates.h"

namespace sparsereel::app {

/// The files of a folder, sorted by the models that they are for.
struct FolderInventory {
  std::filesystem::path folder;
  models::FoundParts found;
  std::vector<models::Candidate> models;

  /// Nothing that could be read is in the folder.
  bool is_empty() const;
  /// Returns the folder's model where it is one whole model, else null.
  const models::Candidate* only_model() const;
};

/// Reads headers only.
FolderInventory take_inventory(const std::filesystem::path& folder);

void print_inventory(const FolderInventory& inventory);

/// The command for its only model, and what else lies in the folder.
void print_rest_of_inventory(const FolderInventory& inventory);

/// The same as data: "models", "loras", "other_files", "unread".
nlohmann::json inventory_report(const FolderInventory& inventory);

}  // namespace sparsereel::app
