// Lists the models in a folder: which of them can run, from which files, and with which command.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "models/store/configs/candidates.h"

namespace sparsereel::app {

/// The files of a folder, sorted by the models that they belong to.
struct FolderInventory {
  std::filesystem::path folder;
  models::FoundParts found;
  std::vector<models::Candidate> models;

  /// Returns true if the folder holds nothing that could be read.
  bool is_empty() const;
  /// Returns the model if the folder holds exactly one, all its parts are there, and there is at most one tokenizer for
  /// it; else null.
  const models::Candidate* only_model() const;
};

/// Lists the folder's files by model. Reads only headers.
FolderInventory take_inventory(const std::filesystem::path& folder);

void print_inventory(const FolderInventory& inventory);

/// Prints the command that runs the folder's only model, and the folder's other files.
void print_rest_of_inventory(const FolderInventory& inventory);

/// Returns the inventory as a JSON object with the keys "path", "models", "loras", "other_files", "unread", and
/// "whole", which is false if the folder was too large to search completely.
nlohmann::json inventory_report(const FolderInventory& inventory);

}  // namespace sparsereel::app
