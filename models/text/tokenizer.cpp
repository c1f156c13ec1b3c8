// Cuts special tokens out of the text and lets SentencePiece split the rest.
#include "models/text/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "hilbert/error.h"
#include "models/files/unicode.h"
#include "models/text/gguf_tokenizer.h"
#include "models/text/tokenizer_json.h"

namespace sparsereel::models {
namespace {

/// An added token with its id.
struct TokenString {
  AddedToken token;
  int64_t id = 0;
};
using TokenStrings = std::map<std::string, TokenString>;  // by content

/// Returns the bytes of white space at the end of `text`.
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

/// Returns the longest of `tokens` that `text` starts with; null if there is none.
const TokenString* token_at_start(std::string_view text, const TokenStrings& tokens) {
  const TokenString* longest = nullptr;
  for (const auto& [content, candidate] : tokens) {
    if (text.starts_with(content) && (longest == nullptr || content.size() > longest->token.content.size()))
      longest = &candidate;
  }
  return longest;
}

/// Splits `text` at the strings in `tokens`, in order. Their ids go to `ids`, the text between them to `rest`.
void split_at_tokens(std::string_view text, const TokenStrings& tokens, std::vector<int64_t>& ids,
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

/// Returns SentencePiece's name for a byte.
std::string byte_piece(int byte) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
  return text.data();
}

/// Adds a piece for each byte, so that characters without a piece are split into bytes. Otherwise the library merges
/// consecutive unknown characters into one unknown piece, in quadratic time. Models that have pieces of bytes are
/// returned as they are.
SpieceModel with_bytes(SpieceModel model) {
  constexpr int kBytes = 256;
  std::set<std::string> names;
  for (int byte = 0; byte < kBytes; ++byte) names.insert(byte_piece(byte));
  const bool has_bytes = std::any_of(model.pieces.begin(), model.pieces.end(), [&](const Piece& piece) {
    return piece.type == PieceType::byte || names.contains(piece.text);
  });
  if (model.byte_fallback || has_bytes) return model;
  model.byte_fallback = true;
  for (int byte = 0; byte < kBytes; ++byte)
    model.pieces.push_back({.text = byte_piece(byte), .score = 0, .type = PieceType::byte});
  return model;
}

std::string sentinel(int64_t index) {
  return "<extra_id_" + std::to_string(index) + ">";
}

}  // namespace

struct Tokenizer::Impl {
  Impl(const SpieceModel& model, const TokenizerConfig& config, const std::string& path) {
    const auto loaded = library.LoadFromSerializedProto(trusted_spiece(with_bytes(model), path));
    if (!loaded.ok())
      throw bad_input(path + ": SentencePiece refuses the model: " + loaded.message(), "download it again");
    pieces = size = std::ssize(model.pieces);
    // The library's own unk_id() looks for the name <unk>, which may belong to another piece.
    unknown_id = std::ranges::find(model.pieces, PieceType::unknown, &Piece::type) - model.pieces.begin();
    for (int64_t i = config.extra_ids - 1; i >= 0; --i) sentinels[sentinel(i)] = size++;
    for (const AddedToken& token : config.tokens) add(token);
    eos_id = id_of(config.eos_token);
    pad_id = id_of(config.pad_token);
    if (eos_id < 0 || pad_id < 0)
      throw bad_input(path + ": the tokenizer's eos_token or pad_token has no id",
                      "take the original tokenizer folder");
    for (const Piece& piece : model.pieces)
      if (piece.type == PieceType::user_defined) add({.content = piece.text});
    for (const auto& [content, id] : sentinels) add({.content = content, .lstrip = true, .rstrip = true});
  }

  /// Returns the id of an added token, a sentinel or a piece; -1 if there is none.
  int64_t id_of(const std::string& content) const {
    if (content.empty()) return -1;
    if (const auto token = tokens.find(content); token != tokens.end()) return token->second.id;
    if (const auto known = sentinels.find(content); known != sentinels.end()) return known->second;
    const int id = library.PieceToId(content);  // of the unknown piece if there is none
    return id < pieces && library.IdToPiece(id) == content ? id : -1;
  }

  /// Adds a token. The first to add a string decides how it is matched. Strings that are no pieces get the next free
  /// id.
  void add(const AddedToken& token) {
    if (tokens.contains(token.content)) return;
    const int64_t known = id_of(token.content);
    tokens.emplace(token.content, TokenString{token, known >= 0 ? known : size++});
  }

  std::vector<int64_t> encode(std::string_view text) const {
    std::vector<int64_t> ids;
    split_at_tokens(text, tokens, ids, [&](std::string_view rest) {
      std::vector<int> found;
      if (const auto done = library.Encode(rest, &found); !done.ok())
        throw run_failure("SentencePiece cannot split the prompt: " + std::string(done.message()),
                          "use another prompt");
      bool unknown = false;  // true if the piece before was one of with_bytes()
      for (const int id : found) {
        if (id < pieces || !unknown) ids.push_back(id < pieces ? id : unknown_id);
        unknown = id >= pieces;
      }
    });
    return ids;
  }

  sentencepiece::SentencePieceProcessor library;
  TokenStrings tokens;
  std::map<std::string, int64_t> sentinels;
  int64_t eos_id = 1, pad_id = 0;
  int64_t pieces = 0, size = 0;  // of the model; including everything that was added
  int64_t unknown_id = 0;
};

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const std::filesystem::path file = file_of({path});
  TokenizerConfig config = read_tokenizer_config(file.parent_path());
  const SpieceModel model = file.extension() == ".json" ? read_tokenizer_json(file, config) : read_spiece(file);
  return {model, config, file.string()};
}

Tokenizer Tokenizer::load(const TokenizerPlace& place) {
  if (place.weights == nullptr) return load(place.path);
  const TokenizerConfig config = {.extra_ids = 0, .tokens = {{"</s>"}, {"<unk>"}, {"<pad>"}}};
  if (place.spiece == nullptr) {
    const std::string name = place.path.string() + ": tokenizer.ggml";
    return {parse_gguf_tokenizer(place.weights->metadata(), name), config, name};
  }
  const std::string name = place.path.string() + ": " + place.spiece->name;
  const std::span<const std::byte> data = place.weights->data(*place.spiece);
  return {parse_spiece({reinterpret_cast<const char*>(data.data()), data.size()}, name), config, name};
}

Tokenizer::Tokenizer(const SpieceModel& model, const TokenizerConfig& config, const std::string& path)
    : impl_(std::make_shared<const Impl>(model, config, path)) {}

TokenIds Tokenizer::encode(const std::string& text, int64_t max_length) const {
  if (max_length < 1) throw bad_option("max_sequence_length", "is " + std::to_string(max_length), "use at least 1");
  if (!is_utf8(text))
    throw bad_input("the prompt is not UTF-8", "save the prompt as UTF-8, or set the terminal's locale to it");
  TokenIds result{impl_->encode(text)};
  result.truncated = static_cast<int64_t>(result.ids.size()) > max_length - 1;
  if (result.truncated) result.ids.resize(max_length - 1);
  if (result.ids.empty() || result.ids.back() != impl_->eos_id) result.ids.push_back(impl_->eos_id);
  result.token_count = static_cast<int64_t>(result.ids.size());
  result.ids.resize(max_length, impl_->pad_id);
  return result;
}

int64_t Tokenizer::vocabulary_size() const {
  return impl_->size;
}

int64_t Tokenizer::pieces() const {
  return impl_->pieces;
}

}  // namespace sparsereel::models
