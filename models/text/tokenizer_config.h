// A tokenizer folder's JSON files: special tokens and sentinels, which stand beside the SentencePiece vocabulary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sparsereel::models {

/// A string that is one token wherever it stands in a prompt.
struct AddedToken {
  std::string content;
  bool lstrip = false;  // swallows the white space before it
  bool rstrip = false;  // swallows the white space after it
};

struct TokenizerConfig {
  std::string eos_token = "</s>";
  std::string pad_token = "<pad>";
  int64_t extra_ids = 100;         // sentinels <extra_id_N>: ids after the SentencePiece pieces, the highest N first
  std::vector<AddedToken> tokens;  // each content once, in the order in which those new to the vocabulary get their
                                   // ids; the model's user-defined pieces and the sentinels are tokens anyhow
};

/// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json as transformers reads them for a
/// T5Tokenizer; each may be absent. Throws Error naming file and field for wrong types and for what is not supported
/// (padding or truncation on the left).
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

}  // namespace sparsereel::models
