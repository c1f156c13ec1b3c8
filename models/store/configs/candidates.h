// The ways to run a model with the files that are there: one for each model, format and naming of its transformers.
// No torch.
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

/// Roles of the one transformer, or of that for high noise, and of that for low noise.
inline constexpr const char *kTransformer = "transformer", *kSecondTransformer = "transformer_2";

/// The files that models can be made of.
struct Offered {
  FoundParts found = {};
  std::map<std::string, std::vector<FoundPart>> named = {};  // by role, what the user chose: in place of what was found
  bool names_tokenizer = false;
};

/// A model, and files for its parts; or a folder in diffusers' layout, which has its own.
struct Candidate {
  std::shared_ptr<const KnownModel> known = nullptr;  // null: a folder in diffusers' layout
  std::filesystem::path pipeline = {};                // that folder
  std::string model = {};                             // as its YAML is called
  std::string format = {};                            // of its transformers
  uint64_t bytes = 0;                                 // of all its weights
  ImageSpec images = {};
  std::map<std::string, FoundPart> parts = {};  // by role
  /// By role, all files that could have been that part, where the user named none.
  std::map<std::string, std::vector<std::filesystem::path>> fitting = {};
  std::vector<std::string> missing = {};               // roles of the parts that no file is
  std::filesystem::path tokenizer = {};                // a folder; empty: it is with the text encoder, or missing
  std::vector<std::filesystem::path> tokenizers = {};  // several that fit, of which none is chosen

  bool lacks_tokenizer = false;

  /// The roles of its parts, transformers first.
  std::vector<std::string> roles() const;
  /// Returns true if it is the same model, made of the same files.
  bool is(const Candidate& other) const;
  bool is_complete() const { return missing.empty(); }
};

/// In the order of the models' names. A folder of diffusers that cannot be read is left out, and listed as unread.
std::vector<Candidate> candidates_of(Offered& offered, const std::filesystem::path& configs);

/// What the user gives to choose this one: "transformer" and its file, or "model" and its folder. Where several
/// tokenizers fit, the first one is among them.
std::vector<std::pair<std::string, std::string>> values_of(const Candidate& candidate);

/// "14.3 GB" or "98.3 MB", in powers of ten, as download pages write sizes.
std::string in_gigabytes(uint64_t bytes);

}  // namespace sparsereel::models
