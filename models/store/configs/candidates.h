// The ways to run a model with the files that were found: one for each model, format and naming of its transformers. No
// torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/found_parts.h"
#include "models/store/configs/known_models.h"

namespace sparsereel::models {

/// Roles of transformers; with two experts the one for high noise is first.
inline constexpr const char *kTransformer = "transformer", *kSecondTransformer = "transformer_2";

/// The files that models can be made of.
struct Offered {
  FoundParts found = {};
  std::map<std::string, std::vector<FoundPart>> named = {};  // the user's files by role; they replace found ones
  bool names_tokenizer = false;
};

/// A model and files for its parts, or a folder in diffusers' layout, which holds its own files.
struct Candidate {
  std::shared_ptr<const KnownModel> known = nullptr;  // null for a folder in diffusers' layout
  std::filesystem::path pipeline = {};                // the folder in diffusers' layout
  std::string model = {};                             // name of its YAML, without the extension
  std::string format = {};                            // format of its transformers: "fp8_scaled"
  uint64_t bytes = 0;                                 // bytes of all its weights
  ImageSpec images = {};
  std::map<std::string, FoundPart> parts = {};  // by role
  /// All files that could have been a part, by role, if the user named none for it.
  std::map<std::string, std::vector<std::filesystem::path>> fitting = {};
  std::vector<std::string> missing = {};  // roles that no file fills
  std::filesystem::path tokenizer = {};   // a folder; empty if the text encoder has one, or if none or several fit
  std::vector<std::filesystem::path> tokenizers = {};  // folders that fit equally, if there are several

  bool lacks_tokenizer = false;

  /// Returns the roles of its parts, transformers first.
  std::vector<std::string> roles() const;
  /// Returns true if `other` is the same model, made of the same files.
  bool is(const Candidate& other) const;
  bool is_complete() const { return missing.empty(); }
};

/// Returns candidates in the order of the models' names. Adds a diffusers folder that cannot be read to the unread
/// files of `offered`.
std::vector<Candidate> candidates_of(Offered& offered, const std::filesystem::path& configs);

/// Returns the options that choose this candidate: "transformer" and its file, or "model" and its folder. If several
/// tokenizers fit, the first one is included.
std::vector<std::pair<std::string, std::string>> values_of(const Candidate& candidate);

/// Returns "14.3 GB" or "98.3 MB", in powers of ten like download pages.
std::string in_gigabytes(uint64_t bytes);

}  // namespace sparsereel::models
