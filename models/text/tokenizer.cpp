// Special tokens out of the text, normalise the rest, split it at white space, find each word's pieces.
#include "models/text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include "hilbert/error.h"
#include "models/text/normalizer.h"
#include "models/text/unicode.h"
#include "models/text/unigram.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kUnknownId = 2;
constexpr std::string_view kWordStart = "\u2581";  // SentencePiece writes a word's leading space so

/// An added token with its id.
struct TokenString {
  AddedToken token;
  int64_t id = 0;
};

/// Bytes of white space at the end of `text`.
size_t trailing_white_space(std::string_view text) {
  size_t begin = text.size();
  for (size_t i = text.size(); i-- > 0;) {
    const bool continuation = (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    if (continuation) continue;
    if (white_space_length(text.substr(i)) == 0) break;
    begin = i;
  }
  return text.size() - begin;
}

/// The longest of `tokens` that `text` starts with; nullptr where none does.
const TokenString* token_at_start(std::string_view text, const std::vector<TokenString>& tokens) {
  const TokenString* longest = nullptr;
  for (const TokenString& candidate : tokens) {
    const std::string& content = candidate.token.content;
    if (text.starts_with(content) && (longest == nullptr || content.size() > longest->token.content.size()))
      longest = &candidate;
  }
  return longest;
}

/// Splits `text` at the strings in `tokens`: their ids go to `ids`, what lies between to `rest`, in the text's order.
void split_at_tokens(std::string_view text, const std::vector<TokenString>& tokens, std::vector<int64_t>& ids,
                     const std::function<void(std::string_view)>& rest) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const TokenString* found = token_at_start(text.substr(i), tokens);
    if (found == nullptr) {
      ++i;
      continue;
    }
    std::string_view before = text.substr(begin, i - begin);
    if (found->token.lstrip) before.remove_suffix(trailing_white_space(before));
    if (!before.empty()) rest(before);
    ids.push_back(found->id);
    i += found->token.content.size();
    while (found->token.rstrip && white_space_length(text.substr(i)) > 0) i += white_space_length(text.substr(i));
    begin = i;
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

std::string sentinel(int64_t index) {
  return "<extra_id_" + std::to_string(index) + ">";
}

std::vector<ScoredPiece> vocabulary_of(const SpieceModel& model, int64_t extra_ids) {
  std::vector<ScoredPiece> vocabulary;
  for (const Piece& piece : model.pieces) vocabulary.push_back({piece.text, piece.score});
  for (int64_t i = extra_ids - 1; i >= 0; --i) vocabulary.push_back({sentinel(i), 0.0});
  return vocabulary;
}

SpieceModel read_model(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "spiece.model";
  if (!std::filesystem::exists(file) && std::filesystem::exists(folder / "tokenizer.json")) {
    throw bad_input(folder.string() + " holds tokenizer.json but no spiece.model",
                    "put the spiece.model of the checkpoint's T5 tokenizer into that folder (published CogVideoX "
                    "folders carry it)");
  }
  return read_spiece(file);
}

}  // namespace

struct Tokenizer::Impl {
  Impl(const SpieceModel& model, const TokenizerConfig& config, const std::string& path)
      : normalizer(model.precompiled_charsmap, path), unigram(vocabulary_of(model, config.extra_ids), kUnknownId) {
    size = unigram.size();
    for (const AddedToken& token : config.tokens) add(token);
    eos_id = id_of(config.eos_token);
    pad_id = id_of(config.pad_token);
    if (eos_id < 0 || pad_id < 0)
      throw bad_input(path + ": the tokenizer's eos_token or pad_token has no id",
                      "take the original tokenizer folder");
    if (config.lists_extra_tokens) return;
    for (const Piece& piece : model.pieces) {
      if (piece.type == PieceType::control || piece.type == PieceType::user_defined)
        add(AddedToken{.content = piece.text});
    }
    for (int64_t i = 0; i < config.extra_ids; ++i) add(AddedToken{.content = sentinel(i)});
  }

  /// The id of an added token or a piece; -1 where there is none.
  int64_t id_of(std::string_view content) const {
    const auto known = added.find(content);
    return known != added.end() ? known->second : unigram.find(content);
  }

  /// The first to add a string decides how to look for it. Strings that are no pieces get the next free id.
  void add(AddedToken token) {
    if (added.contains(token.content)) return;
    const int64_t known = unigram.find(token.content);
    const int64_t id = known >= 0 ? known : size++;
    added.emplace(token.content, id);
    if (token.normalized) token.content = normalizer.normalize(token.content);
    if (token.content.empty()) return;  // nothing is left to look for; the id stays taken
    (token.normalized ? normalized_tokens : raw_tokens).push_back({std::move(token), id});
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
  std::map<std::string, int64_t, std::less<>> added;  // by their content before it was normalised
  int64_t eos_id = 1, pad_id = 0, size = 0;
};

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  return {read_model(folder), read_tokenizer_config(folder), (folder / "spiece.model").string()};
}

Tokenizer::Tokenizer(const SpieceModel& model, const TokenizerConfig& config, const std::string& path) {
  if (model.pieces.size() <= kUnknownId || model.pieces[kUnknownId].type != PieceType::unknown) {
    throw bad_input(path + ": piece 2 is not the unknown piece",
                    "T5's vocabulary starts with pad, eos, unknown: take its own spiece.model");
  }
  impl_ = std::make_shared<const Impl>(model, config, path);
}

TokenIds Tokenizer::encode(const std::string& text, int64_t max_length) const {
  if (max_length < 1) throw bad_option("max_sequence_length", "is " + std::to_string(max_length), "use at least 1");
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
