// SentencePiece's model file, spiece.model (protobuf message ModelProto of sentencepiece_model.proto): reads it, and
// writes a checked one for the library.
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

/// The parts of a model file that tokenization needs.
struct SpieceModel {
  std::vector<Piece> pieces;         // by id
  std::string precompiled_charsmap;  // the normalizer's table, see charsmap.h; may be empty
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;
  bool byte_fallback = false;  // characters without a piece become the pieces of their bytes, not the unknown piece
};

/// Parses the bytes of a unigram model. Throws Error naming `path` if they are damaged or hold another kind of model.
SpieceModel parse_spiece(std::string_view bytes, const std::string& path);
/// Reads and parses a model file. Throws Error naming the file if it cannot be read or parsed.
SpieceModel read_spiece(const std::filesystem::path& path);
/// Returns a new model file for SentencePiece, which trusts its input. The file has no denormalizer and no self-test.
/// Its user-defined pieces are normal ones, because their strings are cut out of a text before SentencePiece splits it.
/// Throws Error naming `path` for what SentencePiece may not handle.
std::string trusted_spiece(const SpieceModel& model, const std::string& path);

}  // namespace sparsereel::models
