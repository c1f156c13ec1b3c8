// Which parts of which families' models lie in single files: told by their tensors, not by the files' names. No torch.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models/checkpoint/family.h"

namespace sparsereel::models {

struct FoundPart {
  std::filesystem::path file;      // of weights, or the index of its shards
  const Family* family = nullptr;  // a file may be a part of several families' models
  std::string role;                // of two alike ("transformer", "transformer_2") the first
  Sizes sizes = {};
  std::string expert = {};       // "high" or "low" where its name, or else its folder's, says so
  std::string other_model = {};  // Part::other_model
};

struct FoundParts {
  std::vector<FoundPart> parts = {};
  std::vector<std::filesystem::path> tokenizers = {};  // folders
  std::vector<std::string> unread = {};                // causes why files could not be read
};

/// Of one file, which may hold several. Throws Error where it is damaged.
std::vector<FoundPart> parts_of(const std::filesystem::path& file);

/// Of the files in a folder and in those of its subfolders that other programs keep models in ("diffusion_models",
/// "HighNoise"). What is no part of a model, such as a LoRA, is left out.
FoundParts find_parts(const std::filesystem::path& folder);

/// What is named for a role: a file itself, of a folder the one file in it, or index of shards, that holds weights of
/// this role. Throws Error (field: role) where there is none, or several.
std::filesystem::path file_of_role(const std::string& role, const std::filesystem::path& named);

/// The role that stands for it in FoundPart: the family's first of the same classes.
std::string first_of_its_kind(const Family& family, const std::string& role);

}  // namespace sparsereel::models
