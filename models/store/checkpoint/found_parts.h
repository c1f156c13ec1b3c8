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
  std::filesystem::path file;      // a file of weights, or the index of its shards
  const Family* family = nullptr;  // a family that has such a part; several families may have it
  // The part's role. If several roles have the same classes ("transformer", "transformer_2"), this is the first of
  // them.
  std::string role;
  Sizes sizes = {};
  std::string expert = {};  // "high" or "low" if the name of the file, or else of its folder, says so
  // The name of the unsupported model to which the part belongs (Part::other_model); empty if it is supported.
  std::string other_model = {};
  WeightsFormat format = {};
  uint64_t bytes = 0;          // size of the part's tensors
  bool has_tokenizer = false;  // for a text encoder: true if a tokenizer is in the file or beside it
};

struct FoundParts {
  std::vector<FoundPart> parts = {};
  std::vector<std::filesystem::path> tokenizers = {};  // folders
  std::vector<std::filesystem::path> pipelines = {};   // folders in diffusers' layout
  std::vector<std::filesystem::path> loras = {};
  std::vector<std::filesystem::path> others = {};  // files that are no part of any supported model
  std::vector<std::string> unread = {};            // error messages about files that could not be read
  bool whole = true;                               // false if the folder was too large to search completely
};

/// Returns the parts in one file, which may hold several. Throws Error if it is damaged.
std::vector<FoundPart> parts_of(const std::filesystem::path& file);

/// Finds the parts in a folder and its subfolders (search_tree()).
FoundParts find_parts(const std::filesystem::path& folder);

/// Returns the files that hold the other expert of the same model. It looks in the folder of this expert's file, and in
/// sibling folders that have the same name except for the word for the expert. Takes only files with the word for the
/// other expert in their name, or else in their folder's name. Damaged files are left out.
std::vector<FoundPart> parts_beside(const FoundPart& expert);

/// Returns the file for a role if the user named `named`. If that is a folder, it returns the folder's only file, or
/// index of shards, for the role. Throws Error (field: role) if the folder has none or several; the Error's choices
/// list the candidates.
std::filesystem::path file_of_role(const std::string& role, const std::filesystem::path& named);

/// Returns the role that FoundPart uses for `role`: the family's first role with the same classes.
std::string first_of_its_kind(const Family& family, const std::string& role);

}  // namespace sparsereel::models
