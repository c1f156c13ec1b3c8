// Protobuf wire format (protobuf.dev/programming-guides/encoding), only as far as ModelProto needs it.
#include "models/text/spiece.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "hilbert/error.h"
#include "models/checkpoint/regular_file.h"
#include "models/text/unicode.h"

namespace sparsereel::models {
namespace {

enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
  uint64_t number = 0;
  Wire wire = Wire::varint;
  uint64_t value = 0;      // varint, fixed32, fixed64
  std::string_view bytes;  // bytes, strings, messages
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
    if (field.number == 3 && field.wire == Wire::varint) piece.type = static_cast<PieceType>(field.value);
  }
  if (piece.text.empty() || !is_utf8(piece.text) || !std::isfinite(piece.score)) {
    throw bad_input(path + " holds an empty piece, one that is not UTF-8, or a score that is not a number",
                    "download the tokenizer's spiece.model again");
  }
  return piece;
}

/// Field 3 of TrainerSpec, model_type: 1 is unigram, also where it is absent.
void check_unigram(std::string_view trainer_spec, const std::string& path) {
  MessageReader reader(trainer_spec, path);
  for (Field field; reader.next(field);) {
    if (field.number != 3 || field.wire != Wire::varint || field.value == 1) continue;
    throw bad_input(path + ": trainer_spec.model_type is " + std::to_string(field.value) + ", not 1 (unigram)",
                    "T5 needs a unigram model: take the tokenizer folder of the same checkpoint as the text encoder");
  }
}

}  // namespace

SpieceModel parse_spiece(std::string_view bytes, const std::string& path) {
  SpieceModel model;
  MessageReader reader(bytes, path);
  for (Field field; reader.next(field);) {
    if (field.wire != Wire::bytes) continue;
    if (field.number == 1) model.pieces.push_back(parse_piece(field.bytes, path));
    if (field.number == 2) check_unigram(field.bytes, path);
    if (field.number != 3) continue;
    MessageReader normalizer_spec(field.bytes, path);
    for (Field inner; normalizer_spec.next(inner);) {
      if (inner.number == 2 && inner.wire == Wire::bytes) model.precompiled_charsmap = inner.bytes;
    }
  }
  if (model.pieces.empty()) throw bad_input(path + " holds no pieces", "download the tokenizer's spiece.model again");
  return model;
}

SpieceModel read_spiece(const std::filesystem::path& path) {
  constexpr uint64_t kMost = 256 << 20;  // T5's has 800 KB
  return parse_spiece(read_regular_file(path, kMost, "check that the checkpoint's tokenizer folder is complete"),
                      path.string());
}

}  // namespace sparsereel::models
