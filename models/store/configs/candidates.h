// Lists the ways to run a model with the files that were found. Each way is a Candidate: a known model with one choice
// of files for its transformers. No torch.
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

/// Roles of transformers. Of two experts, the expert for high noise is the first.
inline constexpr const char *kTransformer = "transformer", *kSecondTransformer = "transformer_2";

/// The files from which a model can be put together.
struct Offered {
  FoundParts found = {};
  // Files that the user named, by role; they replace found ones.
  std::map<std::string, std::vector<FoundPart>> named = {};
  bool names_tokenizer = false;  // true if the user named a tokenizer
};

/// A known model with files for its parts; or a folder in diffusers' layout, which has all files itself.
struct Candidate {
  std::shared_ptr<const KnownModel> known = nullptr;  // null for a folder in diffusers' layout
  std::filesystem::path pipeline = {};                // the folder in diffusers' layout; empty for a known model
  std::string model = {};                             // name of the model's YAML, without the extension
  std::string format = {};                            // format of the transformers: "fp8_scaled"
  uint64_t bytes = 0;                                 // bytes of all weights
  ImageSpec images = {};
  std::map<std::string, FoundPart> parts = {};  // by role
  /// For each role for which the user named no file: all files that could fill it.
  std::map<std::string, std::vector<std::filesystem::path>> fitting = {};
  std::vector<std::string> missing = {};  // roles for which no file was found
  // The tokenizer's folder. Empty if the text encoder has a tokenizer, if the user named one, or if none or several
  // fit.
  std::filesystem::path tokenizer = {};
  // The folders of tokenizers if several fit equally well; otherwise empty.
  std::vector<std::filesystem::path> tokenizers = {};

  bool lacks_tokenizer = false;  // true if a tokenizer is needed and none fits

  /// Returns the roles of `parts`, transformers first.
  std::vector<std::string> roles() const;
  /// Returns true if `other` is the same model, made of the same files.
  bool is(const Candidate& other) const;
  bool is_complete() const { return missing.empty(); }
};

/// Returns the candidates in the order of the models' names. If a diffusers folder cannot be read, adds the message to
/// offered.found.unread.
std::vector<Candidate> candidates_of(Offered& offered, const std::filesystem::path& configs);

/// Returns the names and values of the options that choose this candidate: the transformers and their files, or "model"
/// and its folder. If several tokenizers fit, also "tokenizer" and the first one's folder.
std::vector<std::pair<std::string, std::string>> values_of(const Candidate& candidate);

/// Formats a size: "14.3 GB" or "98.3 MB". GB and MB are powers of ten, as on download pages.
std::string in_gigabytes(uint64_t bytes);

}  // namespace sparsereel::models
