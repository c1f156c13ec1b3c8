// Which files of weights, tokenizers and folders of diffusers lie in a folder and below it. Reads names only. No torch.
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
  bool whole = true;                                  // false: the tree is too large, and the rest was not looked at
};

/// Searches the folder and its subfolders, whatever their names, behind links too. Each folder and each file counts
/// once, however many names it has: a file that has names for both experts counts once for each. Hidden folders and
/// those that programs keep beside their models (outputs, environments) are left out.
ModelTree search_tree(const std::filesystem::path& folder);

/// The files of weights in this one folder; shards are left out where their index is there.
std::vector<std::filesystem::path> weights_in_folder(const std::filesystem::path& folder);

/// The folder that is meant where another name of it was given: its model_index.json, or a repository's folder in the
/// cache of Hugging Face, of which it is the snapshot that refs/main names, or the only one. Any other path is returned
/// as it is. Throws Error where there are several snapshots, or none.
std::filesystem::path model_folder(const std::filesystem::path& named);

/// Device and number of a file or folder, behind links: two names of one file have the same. Nothing where there is
/// none.
std::optional<std::pair<dev_t, ino_t>> identity_of(const std::filesystem::path& path);

}  // namespace sparsereel::models
