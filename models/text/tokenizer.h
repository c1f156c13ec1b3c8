// Converts prompts to token ids: SentencePiece splits the text, this class finds special tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/store/checkpoint/tokenizer_place.h"
#include "models/text/spiece.h"
#include "models/text/tokenizer_config.h"

namespace sparsereel::models {

struct TokenIds {
  std::vector<int64_t> ids;  // exactly max_length: pieces, eos, then padding
  int64_t token_count = 0;   // pieces and eos before padding
  bool truncated = false;    // the prompt did not fit: its last pieces were dropped, eos is kept
};

/// A SentencePiece unigram model with the special tokens of its folder. The ids of special tokens are pad 0, eos 1 and
/// unknown 2 for T5, and pad 0, eos 1 and unknown 3 for UMT5.
class Tokenizer {
 public:
  /// Loads a folder's spiece.model (or tokenizer.json if that is missing), or the file that `path` names, and the JSON
  /// files beside it. Throws Error naming the file if it is missing or damaged.
  static Tokenizer load(const std::filesystem::path& path);
  /// Loads a tokenizer from a folder or a file as above, or from a file of weights, which has no sentinels.
  static Tokenizer load(const TokenizerPlace& place);
  /// Makes a tokenizer from parsed files. Errors name `path`.
  Tokenizer(const SpieceModel& model, const TokenizerConfig& config, const std::string& path);
  /// Converts a text to max_length ids. Throws Error if `text` is not UTF-8 or max_length is below 1.
  TokenIds encode(const std::string& text, int64_t max_length) const;
  /// Returns the number of ids, which run from 0, including sentinels and added tokens.
  int64_t vocabulary_size() const;
  /// Returns the number of pieces, without sentinels and added tokens.
  int64_t pieces() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace sparsereel::models
