// Special tokens out of the text, normalise the rest, split it at white space, find each word's pieces.
#include "models/text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "hilbert/error.h"
#include "models/text/normalizer.h"
#include "models/text/spiece.h"
#include "models/text/tokenizer_config.h"
#include "models/text/unicode.h"
#include "models/text/unigram.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kUnknownId = 2;
constexpr std::string_view kWordStart = "\u2581";  // SentencePiece writes a word's leading space so

struct TokenString {
  std::string content;
  int64_t id = 0;
};

/// Splits `text` at the strings in `tokens` (the leftmost, and of several there the longest): their ids go to `ids`,
/// what lies between to `rest`.
void split_at_tokens(std::string_view text, const std::vector<TokenString>& tokens, std::vector<int64_t>& ids,
                     const std::function<void(std::string_view)>& rest) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const TokenString* longest = nullptr;
    for (const TokenString& token : tokens) {
      if (!text.substr(i).starts_with(token.content)) continue;
      if (longest == nullptr || token.content.size() > longest->content.size()) longest = &token;
    }
    if (longest == nullptr) {
      ++i;
      continue;
    }
    if (i > begin) rest(text.substr(begin, i - begin));
    ids.push_back(longest->id);
    begin = i += longest->content.size();
  }
  if (begin < text.size()) rest(text.substr(begin));
}

/// Calls `word` for each run of characters that are not white space.
void split_at_white_space(std::string_view text, const std::function<void(std::string_view)>& word) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t space = white_space_length(text.substr(i));
    if (space == 0) {
      i += character_length(text.substr(i));
      continue;
    }
    if (i > begin) word(text.substr(begin, i - begin));
    begin = i += space;
  }
  if (begin < text.size()) word(text.substr(begin));
}

std::vector<ScoredPiece> vocabulary_of(const SpieceModel& model, int64_t extra_ids) {
  std::vector<ScoredPiece> vocabulary;
  for (const Piece& piece : model.pieces) vocabulary.push_back({piece.text, piece.score});
  for (int64_t i = extra_ids - 1; i >= 0; --i) vocabulary.push_back({"<extra_id_" + std::to_string(i) + ">", 0.0});
  return vocabulary;
}

SpieceModel read_model(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "spiece.model";
  if (!std::filesystem::exists(file) && std::filesystem::exists(folder / "tokenizer.json")) {
    throw bad_input(folder.string() + " holds tokenizer.json but no spiece.model",
                    "put the spiece.model of the checkpoint's T5 tokenizer into that folder (published CogVideoX "
                    "folders carry it)");
  }
  SpieceModel model = read_spiece(file);
  if (model.pieces.size() <= kUnknownId || model.pieces[kUnknownId].type != PieceType::unknown) {
    throw bad_input(file.string() + ": piece 2 is not the unknown piece",
                    "T5's vocabulary starts with pad, eos, unknown: take its own spiece.model");
  }
  return model;
}

}  // namespace

struct Tokenizer::Impl {
  Impl(const SpieceModel& model, const TokenizerConfig& config, const std::string& path)
      : normalizer(model.precompiled_charsmap, path), unigram(vocabulary_of(model, config.extra_ids), kUnknownId) {
    size = unigram.size();
    for (const AddedToken& token : config.tokens) {
      const int64_t known = unigram.find(token.content);
      const int64_t id = known >= 0 ? known : size++;
      if (token.content == config.eos_token) eos_id = id;
      if (token.content == config.pad_token) pad_id = id;
      if (token.normalized) {
        normalized_tokens.push_back({normalizer.normalize(token.content), id});
      } else {
        raw_tokens.push_back({token.content, id});
      }
    }
  }

  /// A word gets a leading word start unless it has one, and every word start in it begins a new word.
  void encode_word(std::string_view text, std::vector<int64_t>& ids) const {
    std::string word = text.starts_with(kWordStart) ? "" : std::string(kWordStart);
    word += text;
    for (size_t begin = 0; begin < word.size();) {
      const size_t end = std::min(word.find(kWordStart, begin + kWordStart.size()), word.size());
      unigram.encode(std::string_view(word).substr(begin, end - begin), ids);
      begin = end;
    }
  }

  std::vector<int64_t> encode(std::string_view text) const {
    std::vector<int64_t> ids;
    split_at_tokens(text, raw_tokens, ids, [&](std::string_view raw) {
      split_at_tokens(normalizer.normalize(raw), normalized_tokens, ids, [&](std::string_view normalized) {
        split_at_white_space(normalized, [&](std::string_view word) { encode_word(word, ids); });
      });
    });
    return ids;
  }

  Normalizer normalizer;
  Unigram unigram;
  std::vector<TokenString> raw_tokens, normalized_tokens;
  int64_t eos_id = 1, pad_id = 0, size = 0;
};

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  Tokenizer tokenizer;
  tokenizer.impl_ = std::make_shared<const Impl>(read_model(folder), read_tokenizer_config(folder),
                                                 (folder / "spiece.model").string());
  return tokenizer;
}

TokenIds Tokenizer::encode(const std::string& text, int64_t max_length) const {
  if (max_length < 1) throw bad_input("--max-sequence-length is " + std::to_string(max_length), "use at least 1");
  if (!is_utf8(text))
    throw bad_input("the prompt is not UTF-8", "save the prompt as UTF-8, or set the terminal's locale to it");
  TokenIds result{impl_->encode(text)};
  result.truncated = static_cast<int64_t>(result.ids.size()) > max_length - 1;
  if (result.truncated) result.ids.resize(max_length - 1);
  result.ids.push_back(impl_->eos_id);
  result.token_count = static_cast<int64_t>(result.ids.size());
  result.ids.resize(max_length, impl_->pad_id);
  return result;
}

int64_t Tokenizer::vocabulary_size() const {
  return impl_->size;
}

}  // namespace sparsereel::models
