// The JSON files of a tokenizer folder: special tokens and sentinels in addition to the vocabulary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sparsereel::models {

/// A string that is a single token wherever it occurs in a prompt.
struct AddedToken {
  std::string content;
  bool lstrip = false;  // the token absorbs white space before it
  bool rstrip = false;  // the token absorbs white space after it
  /// True if the token is searched for after the text's normalization, false if before. Only byte-level BPE
  /// distinguishes the two.
  bool normalized = false;
  int64_t stated_id = -1;  // the id that a file gives the token; -1 if no file does
};

struct TokenizerConfig {
  std::string eos_token = "</s>";
  std::string pad_token = "<pad>";
  int64_t extra_ids = 100;  // number of sentinels <extra_id_N>; their ids follow the pieces', highest N first
  /// Holds each string once. Strings that the vocabulary lacks get new ids in this order. User-defined pieces and
  /// sentinels are tokens, too.
  std::vector<AddedToken> tokens;
};

/// The special tokens of one of transformers' tokenizer classes, for a folder that names no others.
struct DefaultTokens {
  const char *eos = "</s>", *unknown = "<unk>", *padding = "<pad>";
};

/// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json as transformers does for a T5Tokenizer,
/// or another class with these default tokens. Each file may be absent. Throws Error naming file and field for wrong
/// types and unsupported settings (padding or truncation on the left).
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder, const DefaultTokens& defaults = {});

}  // namespace sparsereel::models
