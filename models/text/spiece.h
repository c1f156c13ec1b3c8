// Reads SentencePiece's model file, spiece.model (protobuf message ModelProto of sentencepiece_model.proto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::models {

enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string text;
  float score = 0;  // log probability
  PieceType type = PieceType::normal;
};

struct SpieceModel {
  std::vector<Piece> pieces;         // by id
  std::string precompiled_charsmap;  // the normaliser's table, see normalizer.h; may be empty
};

/// Parses the bytes of a unigram model. Throws Error naming `path` when they are damaged or hold another kind of model.
SpieceModel parse_spiece(std::string_view bytes, const std::string& path);
/// Throws Error naming the file when it cannot be read or parsed.
SpieceModel read_spiece(const std::filesystem::path& path);

}  // namespace sparsereel::models
