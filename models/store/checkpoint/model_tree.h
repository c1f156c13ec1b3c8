// Finds weights, tokenizers and diffusers folders in a folder and its subfolders. It recognizes files by their names,
// and reads only indices of shards. No torch.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

namespace sparsereel::models {

struct ModelTree {
  std::vector<std::filesystem::path> weights;         // files of weights, and indices of shards
  std::vector<std::filesystem::path> tokenizers;      // folders with a tokenizer (holds_tokenizer())
  std::vector<std::filesystem::path> pipelines = {};  // folders in diffusers' layout, whose files are not in `weights`
  bool whole = true;                                  // false if the tree was too large to search completely
};

/// Searches the folder and its subfolders, following links. A folder or file counts once, even if it has several names
/// (links). But a file that has names for both experts is listed once for each expert. Hidden folders are left out, and
/// so are folders that programs keep beside their models (outputs, environments).
ModelTree search_tree(const std::filesystem::path& folder);

/// Returns the files of weights in this folder, without its subfolders. For sharded weights, the list has the index and
/// not the shards.
std::vector<std::filesystem::path> weights_in_folder(const std::filesystem::path& folder);

/// Returns the model's folder for a path that the user gave. For a model_index.json, this is the file's folder. For a
/// repository in Hugging Face's cache, this is the only snapshot, or the snapshot that refs/main names. Any other path
/// is returned as it is. Throws Error if there are several snapshots and refs/main names none, or if there is no
/// snapshot.
std::filesystem::path model_folder(const std::filesystem::path& named);

/// Follows links, and returns the device and inode of the file or folder; nullopt if it does not exist. Two names of
/// one file give the same result.
std::optional<std::pair<dev_t, ino_t>> identity_of(const std::filesystem::path& path);

}  // namespace sparsereel::models
