// Byte-level BPE (Sennrich et al., arXiv 1508.07909; over bytes as in GPT-2). A word is split into bytes. Then the pair
// of neighbors that stands first in the list of merges is merged, again and again, until no pair of the list is left.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/text/token_model.h"
#include "models/text/tokenizer_config.h"

namespace sparsereel::models {

/// A vocabulary as files spell it: every byte is a printable character (byte_symbol()).
struct BytePairModel {
  std::map<std::string, int64_t> vocabulary;                // ids 0, 1, ..., each once
  std::vector<std::pair<std::string, std::string>> merges;  // the first is merged first
};

/// Returns the character, in UTF-8, that stands for a byte in vocabularies: the byte's own character in Latin-1 if that
/// is printable. The other bytes take the characters from U+0100 on, in order.
std::string byte_symbol(uint8_t byte);

/// Makes the token model of a parsed vocabulary. It first cuts the added tokens out of a text. The rest of the text is
/// brought into normal form C (normal_form.h) and split by split_words(). Texts have no end token. Added tokens that
/// the vocabulary lacks get the next free ids. Throws Error naming `path` if ids are missing, a byte has no symbol, a
/// merge joins or makes a string outside the vocabulary, or an added token gets another id than a file states.
std::unique_ptr<TokenModel> make_byte_pairs(const BytePairModel& model, const TokenizerConfig& config,
                                            const std::string& path);

}  // namespace sparsereel::models
