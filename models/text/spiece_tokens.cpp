// Cuts special tokens out of the text and lets SentencePiece split the rest.
#include "models/text/spiece_tokens.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>

#include "hilbert/error.h"
#include "models/text/token_strings.h"

namespace sparsereel::models {
namespace {

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

class SpieceTokens final : public TokenModel {
 public:
  SpieceTokens(const SpieceModel& model, const TokenizerConfig& config, const std::string& path) {
    const auto loaded = library_.LoadFromSerializedProto(trusted_spiece(with_bytes(model), path));
    if (!loaded.ok())
      throw bad_input(path + ": SentencePiece refuses the model: " + loaded.message(), "download it again");
    pieces_ = size_ = std::ssize(model.pieces);
    // The library's own unk_id() looks for the name <unk>, which may belong to another piece.
    unknown_id_ = std::ranges::find(model.pieces, PieceType::unknown, &Piece::type) - model.pieces.begin();
    for (int64_t i = config.extra_ids - 1; i >= 0; --i) sentinels_[sentinel(i)] = size_++;
    for (const AddedToken& token : config.tokens) add(token);
    eos_id_ = id_of(config.eos_token);
    pad_id_ = id_of(config.pad_token);
    if (eos_id_ < 0 || pad_id_ < 0)
      throw bad_input(path + ": the tokenizer's eos_token or pad_token has no id",
                      "take the original tokenizer folder");
    for (const Piece& piece : model.pieces)
      if (piece.type == PieceType::user_defined) add({.content = piece.text});
    for (const auto& [content, id] : sentinels_) add({.content = content, .lstrip = true, .rstrip = true});
  }

  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> ids;
    tokens_.split(text, ids, [&](std::string_view rest) {
      std::vector<int> found;
      if (const auto done = library_.Encode(rest, &found); !done.ok())
        throw run_failure("SentencePiece cannot split the prompt: " + std::string(done.message()),
                          "use another prompt");
      bool unknown = false;  // true if with_bytes() added the previous piece
      for (const int id : found) {
        if (id < pieces_ || !unknown) ids.push_back(id < pieces_ ? id : unknown_id_);
        unknown = id >= pieces_;
      }
    });
    return ids;
  }
  std::optional<int64_t> end_id() const override { return eos_id_; }
  int64_t padding_id() const override { return pad_id_; }
  int64_t size() const override { return size_; }
  int64_t pieces() const override { return pieces_; }

 private:
  /// Returns the id of an added token, a sentinel or a piece; -1 if there is none.
  int64_t id_of(const std::string& content) const {
    if (content.empty()) return -1;
    if (const int64_t token = tokens_.find(content); token >= 0) return token;
    if (const auto known = sentinels_.find(content); known != sentinels_.end()) return known->second;
    const int id = library_.PieceToId(content);  // the id of the unknown piece if no piece has this text
    return id < pieces_ && library_.IdToPiece(id) == content ? id : -1;
  }

  /// Adds a token, unless one with the same string was added before. A string that has no id yet gets the next free id.
  void add(const AddedToken& token) {
    if (tokens_.find(token.content) >= 0) return;
    const int64_t known = id_of(token.content);
    tokens_.add(token, known >= 0 ? known : size_++);
  }

  sentencepiece::SentencePieceProcessor library_;
  TokenStrings tokens_;
  std::map<std::string, int64_t> sentinels_;
  int64_t eos_id_ = 1, pad_id_ = 0;
  int64_t pieces_ = 0, size_ = 0;  // number of the model's pieces; number of all ids, with added tokens
  int64_t unknown_id_ = 0;
};

}  // namespace

std::unique_ptr<TokenModel> make_spiece_tokens(const SpieceModel& model, const TokenizerConfig& config,
                                               const std::string& path) {
  return std::make_unique<SpieceTokens>(model, config, path);
}

}  // namespace sparsereel::models
