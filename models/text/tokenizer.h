// Prompt -> token ids, as transformers' T5Tokenizer does it from the same spiece.model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace sparsereel::models {

struct TokenIds {
  std::vector<int64_t> ids;  // exactly max_length: pieces, eos (1), then padding (0)
  int64_t token_count = 0;   // pieces and eos before padding
  bool truncated = false;    // the prompt did not fit
};

/// A SentencePiece unigram model. T5's ids: pad 0, eos 1, unknown 2.
class Tokenizer {
 public:
  /// Reads folder/spiece.model. Throws Error naming the file when it is missing or damaged.
  static Tokenizer load(const std::filesystem::path& folder);
  TokenIds encode(const std::string& text, int64_t max_length) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace sparsereel::models
