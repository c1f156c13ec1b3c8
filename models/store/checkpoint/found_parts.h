// Which parts of which families' models lie in single files: told by their tensors, not by the files' names. No torch.
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
  std::string role;                // of two alike ("transformer", "transformer_2") the first
  Sizes sizes = {};
  std::string expert = {};       // "high" or "low" where its name, or else its folder's, says so
  std::string other_model = {};  // Part::other_model
  WeightsFormat format = {};
  uint64_t bytes = 0;          // of this part's tensors
  bool has_tokenizer = false;  // of a text encoder: one is in the file or beside it
};

struct FoundParts {
  std::vector<FoundPart> parts = {};
  std::vector<std::filesystem::path> tokenizers = {};  // folders
  std::vector<std::filesystem::path> pipelines = {};   // folders in diffusers' layout
  std::vector<std::filesystem::path> loras = {};
  std::vector<std::filesystem::path> others = {};  // files that are no part of any model
  std::vector<std::string> unread = {};            // causes why files could not be read
  bool whole = true;                               // false: the folder holds more than was looked at
};

/// Of one file, which may hold several. Throws Error where it is damaged.
std::vector<FoundPart> parts_of(const std::filesystem::path& file);

/// Finds the parts in a folder and its subfolders (search_tree()).
FoundParts find_parts(const std::filesystem::path& folder);

/// The files for the other expert that lie beside this one, or in the folder beside its own that is named for the other
/// expert: those whose names say which expert they are for. Damaged ones are left out.
std::vector<FoundPart> parts_beside(const FoundPart& expert);

/// What is named for a role: a file itself, of a folder the one file in it, or index of shards, that holds weights of
/// this role. Throws Error (field: role) where there is none, or several: its choices name each.
std::filesystem::path file_of_role(const std::string& role, const std::filesystem::path& named);

/// The role that stands for it in FoundPart: the family's first of the same classes.
std::string first_of_its_kind(const Family& family, const std::string& role);

}  // namespace sparsereel::models
