// Converts prompts to token ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/store/checkpoint/tokenizer_place.h"
#include "models/text/spiece.h"
#include "models/text/token_model.h"
#include "models/text/tokenizer_config.h"

namespace sparsereel::models {

struct TokenIds {
  /// Pieces, eos if the tokenizer has one, then padding. encode() returns exactly max_length ids.
  std::vector<int64_t> ids;
  int64_t token_count = 0;  // number of ids before the padding
  bool truncated = false;   // the prompt did not fit: its last pieces were dropped, eos is kept
};

/// A tokenizer of one of two kinds. A SentencePiece unigram model ends texts with eos; the ids of special tokens are
/// pad 0, eos 1 and unknown 2 for T5, and pad 0, eos 1 and unknown 3 for UMT5. With byte-level BPE, texts have no end
/// token.
class Tokenizer {
 public:
  /// Loads the file that `path` names. If `path` is a folder, loads its spiece.model, or vocab.json and merges.txt, or
  /// else its tokenizer.json. Also reads the JSON files beside these. Throws Error naming the file if it is missing or
  /// damaged.
  static Tokenizer load(const std::filesystem::path& path);
  /// Loads a tokenizer from a folder or a file as above, or from a file of weights. The latter defines no sentinels.
  static Tokenizer load(const TokenizerPlace& place);
  explicit Tokenizer(std::shared_ptr<const TokenModel> model);
  /// Makes a SentencePiece tokenizer from parsed files. Errors name `path`.
  Tokenizer(const SpieceModel& model, const TokenizerConfig& config, const std::string& path);
  /// Converts a text to max_length ids. Throws Error if `text` is not UTF-8 or max_length is below 1.
  TokenIds encode(const std::string& text, int64_t max_length) const;
  /// Converts a text to all of its ids, without padding. An empty text has no ids. Throws Error if `text` is not UTF-8.
  TokenIds encode_whole(const std::string& text) const;
  /// Returns the number of ids, which run from 0, including sentinels and added tokens.
  int64_t vocabulary_size() const;
  /// Returns the size of the vocabulary, without sentinels and added tokens.
  int64_t pieces() const;

 private:
  std::shared_ptr<const TokenModel> model_;
};

}  // namespace sparsereel::models
