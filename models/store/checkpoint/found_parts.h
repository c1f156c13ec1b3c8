// Finds the parts of models in single files. The tensors, not the names of the files, tell which part a file holds. No
// torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/format_name.h"

namespace sparsereel::models {

struct FoundPart {
  std::filesystem::path file;      // of weights, or the index of its shards
  const Family* family = nullptr;  // a file may be a part of several families' models
  std::string role;                // for roles of the same classes ("transformer", "transformer_2"), the first role
  Sizes sizes = {};
  std::string expert = {};       // "high" or "low" if the name of the file, or else of its folder, says so
  std::string other_model = {};  // result of Part::other_model
  WeightsFormat format = {};
  uint64_t bytes = 0;          // bytes of the tensors of this part
  bool has_tokenizer = false;  // for a text encoder: a tokenizer is in the file or beside it
};

struct FoundParts {
  std::vector<FoundPart> parts = {};
  std::vector<std::filesystem::path> tokenizers = {};  // folders
  std::vector<std::filesystem::path> pipelines = {};   // folders in diffusers' layout
  std::vector<std::filesystem::path> loras = {};
  std::vector<std::filesystem::path> others = {};  // files that are no part of any supported model
  std::vector<std::string> unread = {};            // error messages of files that could not be read
  bool whole = true;                               // false if the folder was too large to search completely
};

/// Returns the parts in one file, which may hold several. Throws Error if it is damaged.
std::vector<FoundPart> parts_of(const std::filesystem::path& file);

/// Finds the parts in a folder and its subfolders (search_tree()).
FoundParts find_parts(const std::filesystem::path& folder);

/// Returns the files for the other expert. They lie beside the file of this expert, or in the sibling folder that is
/// named for the other expert. Only files whose names say their expert count. Damaged files are left out.
std::vector<FoundPart> parts_beside(const FoundPart& expert);

/// Returns the file that a user named for a role. In a folder this is the one file or index of shards for the role.
/// Throws Error (field: role) if there are none or several; its choices name each.
std::filesystem::path file_of_role(const std::string& role, const std::filesystem::path& named);

/// Returns the role that FoundPart uses for `role`: the family's first role with the same classes.
std::string first_of_its_kind(const Family& family, const std::string& role);

}  // namespace sparsereel::models
