// Reads and writes the protobuf wire format (protobuf.dev/programming-guides/encoding), as far as ModelProto needs it.
#include "models/text/spiece.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "hilbert/error.h"
#include "models/files/regular_file.h"
#include "models/files/unicode.h"
#include "models/text/charsmap.h"

namespace sparsereel::models {
namespace {

// Fields of ModelProto, TrainerSpec and NormalizerSpec.
constexpr uint64_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3;
constexpr uint64_t kModelType = 3, kWhitespaceAsSuffix = 24, kByteFallback = 35;
constexpr uint64_t kCharsmap = 2, kDummyPrefix = 3, kExtraWhitespaces = 4, kEscapeWhitespaces = 5;
constexpr uint64_t kUnigram = 1;  // the model type of unigram models, which is the default

constexpr size_t kMostPieces = 1 << 20;  // UMT5 has 256384

enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
  uint64_t number = 0;
  Wire wire = Wire::varint;
  uint64_t value = 0;      // of a varint, fixed32 or fixed64
  std::string_view bytes;  // of bytes, a string or a message
};

/// Walks the fields of one message.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  bool next(Field& field) {
    if (bytes_.empty()) return false;
    const uint64_t key = varint();
    field = {};
    field.number = key >> 3;
    field.wire = static_cast<Wire>(key & 7);
    switch (field.wire) {
      case Wire::varint:
        field.value = varint();
        return true;
      case Wire::fixed64:
        field.value = fixed(8);
        return true;
      case Wire::fixed32:
        field.value = fixed(4);
        return true;
      case Wire::bytes:
        field.bytes = take(varint());
        return true;
    }
    throw damaged("unknown wire type");
  }

 private:
  Error damaged(const std::string& problem) const {
    return bad_input(path_ + " is not a whole SentencePiece model: " + problem,
                     "download the tokenizer's spiece.model again");
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size()) throw damaged("a field runs past the end");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  uint64_t fixed(uint64_t count) {
    uint64_t value = 0;
    const std::string_view raw = take(count);
    for (uint64_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(raw[i])) << (8 * i);
    return value;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw damaged("a number is too long");
  }

  std::string_view bytes_;
  const std::string& path_;
};

Piece parse_piece(std::string_view bytes, const std::string& path) {
  Piece piece;
  MessageReader reader(bytes, path);
  for (Field field; reader.next(field);) {
    if (field.number == 1 && field.wire == Wire::bytes) piece.text = field.bytes;
    if (field.number == 2 && field.wire == Wire::fixed32)
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3 && field.wire == Wire::varint)
      piece.type = static_cast<PieceType>(std::min<uint64_t>(field.value, UINT8_MAX));
  }
  return piece;
}

void parse_trainer_spec(std::string_view bytes, SpieceModel& model, const std::string& path) {
  MessageReader reader(bytes, path);
  for (Field field; reader.next(field);) {
    if (field.wire != Wire::varint) continue;
    if (field.number == kWhitespaceAsSuffix) model.treat_whitespace_as_suffix = field.value != 0;
    if (field.number == kByteFallback) model.byte_fallback = field.value != 0;
    if (field.number != kModelType || field.value == kUnigram) continue;
    throw bad_input(path + ": trainer_spec.model_type is " + std::to_string(field.value) + ", not 1 (unigram)",
                    "T5 needs a unigram model: take the tokenizer folder of the same checkpoint as the text encoder");
  }
}

void parse_normalizer_spec(std::string_view bytes, SpieceModel& model, const std::string& path) {
  MessageReader reader(bytes, path);
  for (Field field; reader.next(field);) {
    if (field.number == kCharsmap && field.wire == Wire::bytes) model.precompiled_charsmap = field.bytes;
    if (field.wire != Wire::varint) continue;
    if (field.number == kDummyPrefix) model.add_dummy_prefix = field.value != 0;
    if (field.number == kExtraWhitespaces) model.remove_extra_whitespaces = field.value != 0;
    if (field.number == kEscapeWhitespaces) model.escape_whitespaces = field.value != 0;
  }
}

void check_piece(const Piece& piece, const std::string& path) {
  constexpr size_t kLongest = 1024;  // bytes; SentencePiece's default limit is 16 characters
  const bool known_type = piece.type >= PieceType::normal && piece.type <= PieceType::byte;
  const bool text_is_good = !piece.text.empty() && piece.text.size() <= kLongest && is_utf8(piece.text) &&
                            piece.text.find('\0') == std::string::npos;
  if (text_is_good && known_type && std::isfinite(piece.score)) return;
  throw bad_input(path + " holds a piece that is empty, longer than " + std::to_string(kLongest) +
                      " bytes, not UTF-8, contains NUL, or has an unknown type or a score that is not a number",
                  "download the tokenizer folder again");
}

/// Writes the fields of one message.
class MessageWriter {
 public:
  MessageWriter& number(uint64_t field, uint64_t value) {
    varint(field << 3 | static_cast<uint64_t>(Wire::varint));
    varint(value);
    return *this;
  }
  MessageWriter& real(uint64_t field, float value) {
    varint(field << 3 | static_cast<uint64_t>(Wire::fixed32));
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(std::bit_cast<uint32_t>(value) >> (8 * i));
    return *this;
  }
  MessageWriter& bytes(uint64_t field, std::string_view value) {
    varint(field << 3 | static_cast<uint64_t>(Wire::bytes));
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& written() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value > 0x7F; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace

SpieceModel parse_spiece(std::string_view bytes, const std::string& path) {
  SpieceModel model;
  MessageReader reader(bytes, path);
  for (Field field; reader.next(field);) {
    if (field.wire != Wire::bytes) continue;
    if (field.number == kPieces) model.pieces.push_back(parse_piece(field.bytes, path));
    if (field.number == kTrainerSpec) parse_trainer_spec(field.bytes, model, path);
    if (field.number == kNormalizerSpec) parse_normalizer_spec(field.bytes, model, path);
    if (model.pieces.size() > kMostPieces) break;  // trusted_spiece() refuses it
  }
  if (model.pieces.empty()) throw bad_input(path + " holds no pieces", "download the tokenizer's spiece.model again");
  return model;
}

std::string trusted_spiece(const SpieceModel& model, const std::string& path) {
  if (model.pieces.size() > kMostPieces)
    throw bad_input(path + " holds more than " + std::to_string(kMostPieces) + " pieces",
                    "take the tokenizer folder of the same checkpoint as the text encoder");
  check_charsmap(model.precompiled_charsmap, path);
  MessageWriter file;
  for (const Piece& piece : model.pieces) {
    check_piece(piece, path);
    const PieceType type = piece.type == PieceType::user_defined ? PieceType::normal : piece.type;
    MessageWriter message;
    message.bytes(1, piece.text).real(2, piece.score).number(3, static_cast<uint64_t>(type));
    file.bytes(kPieces, message.written());
  }
  MessageWriter trainer, normalizer;
  trainer.number(kModelType, kUnigram)
      .number(kWhitespaceAsSuffix, model.treat_whitespace_as_suffix)
      .number(kByteFallback, model.byte_fallback);
  normalizer.bytes(kCharsmap, model.precompiled_charsmap)
      .number(kDummyPrefix, model.add_dummy_prefix)
      .number(kExtraWhitespaces, model.remove_extra_whitespaces)
      .number(kEscapeWhitespaces, model.escape_whitespaces);
  return file.bytes(kTrainerSpec, trainer.written()).bytes(kNormalizerSpec, normalizer.written()).written();
}

SpieceModel read_spiece(const std::filesystem::path& path) {
  constexpr uint64_t kMost = 64 << 20;  // T5's file has 800 KB, UMT5's has 5 MB
  return parse_spiece(read_regular_file(path, kMost, "check that the checkpoint's tokenizer folder is complete"),
                      path.string());
}

}  // namespace sparsereel::models
