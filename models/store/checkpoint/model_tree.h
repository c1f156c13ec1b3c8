// Finds weights, tokenizers and diffusers folders in a folder and below it. Looks at names, and reads only the indices
// of shards. No torch.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

namespace sparsereel::models {

struct ModelTree {
  std::vector<std::filesystem::path> weights;         // files, and the indices of shards
  std::vector<std::filesystem::path> tokenizers;      // folders with spiece.model or tokenizer.json
  std::vector<std::filesystem::path> pipelines = {};  // folders in diffusers' layout, whose files are not in `weights`
  bool whole = true;                                  // false if the tree was too large to search completely
};

/// Searches the folder and its subfolders, following links. Each folder and each file counts once, however many names
/// it has, but a file with names for both experts counts once for each. Hidden folders, and folders that programs keep
/// beside their models (outputs, environments), are left out.
ModelTree search_tree(const std::filesystem::path& folder);

/// Returns the files of weights in this folder, without its subfolders. The index of sharded weights is in the list in
/// place of its shards.
std::vector<std::filesystem::path> weights_in_folder(const std::filesystem::path& folder);

/// Returns the model's folder for a path that the user gave. For a model_index.json it is the folder of that file. For
/// a repository in Hugging Face's cache it is its only snapshot or the one that refs/main names. Returns any other path
/// as it is. Throws Error if there are several snapshots and refs/main names none, or if there is no snapshot.
std::filesystem::path model_folder(const std::filesystem::path& named);

/// Returns device and inode of a file or folder behind links, equal for two names of one file; nothing if it does not
/// exist.
std::optional<std::pair<dev_t, ino_t>> identity_of(const std::filesystem::path& path);

}  // namespace sparsereel::models
