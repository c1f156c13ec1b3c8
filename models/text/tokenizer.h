// Prompt -> token ids: SentencePiece's for text, ours for the special tokens in it.
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
  bool truncated = false;    // the prompt did not fit: its last pieces are gone, eos is kept
};

/// A SentencePiece unigram model with the special tokens of its folder: T5's are pad 0, eos 1 and unknown 2, UMT5's pad
/// 0, eos 1 and unknown 3.
class Tokenizer {
 public:
  /// Of a folder spiece.model, or tokenizer.json where there is none, or the one file that is named, and the JSON files
  /// beside it. Throws Error naming the file when it is missing or damaged.
  static Tokenizer load(const std::filesystem::path& path);
  /// The same, or from a file of weights, which says nothing of sentinels: there are none then.
  static Tokenizer load(const TokenizerPlace& place);
  /// Made of what load() reads; errors name `path`.
  Tokenizer(const SpieceModel& model, const TokenizerConfig& config, const std::string& path);
  /// Throws Error when `text` is not UTF-8 or max_length is below 1.
  TokenIds encode(const std::string& text, int64_t max_length) const;
  /// Ids run from 0 to vocabulary_size() - 1; sentinels and added tokens included.
  int64_t vocabulary_size() const;
  /// Without those.
  int64_t pieces() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace sparsereel::models
