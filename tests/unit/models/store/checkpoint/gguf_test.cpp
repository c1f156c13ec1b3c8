// Tests that the GGUF reader finds each tensor in the file, and that errors about malformed files name the file.
#include "models/store/checkpoint/gguf.h"

#include <cstring>

#include "models/files/json_text.h"
#include "models/store/checkpoint/tensor_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::TemporaryFolder;
using test::throws_error;
using test::write_text;

template <typename Number>
std::string raw(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string text(const std::string& text) {
  return raw<uint64_t>(text.size()) + text;
}

std::string value(const std::string& key, uint32_t type, const std::string& content) {
  return text(key) + raw(type) + content;
}

std::string tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
  std::string bytes = text(name) + raw(static_cast<uint32_t>(dims.size()));
  for (const uint64_t size : dims) bytes += raw(size);
  return bytes + raw(type) + raw(offset);
}

struct Gguf {
  std::vector<std::string> values = {}, tensors = {};
  size_t data_bytes = 0;
  uint32_t version = 3;
  size_t alignment = 32;

  std::string bytes() const {
    std::string all = "GGUF" + raw(version) + raw<uint64_t>(tensors.size()) + raw<uint64_t>(values.size());
    for (const std::string& each : values) all += each;
    for (const std::string& each : tensors) all += each;
    all.resize((all.size() + alignment - 1) / alignment * alignment, '\0');
    return all + std::string(data_bytes, '\x01');
  }
};

TensorList parsed(const std::string& bytes) {
  return parse_gguf(std::as_bytes(std::span(bytes)), "wan.gguf");
}

std::string shape_value(const std::string& tensor, const std::vector<int32_t>& shape) {
  std::string content = raw<uint32_t>(5) + raw<uint64_t>(shape.size());
  for (const int32_t size : shape) content += raw(size);
  return value("comfy.gguf.orig_shape." + tensor, 9, content);
}

const std::string kOneF32 = tensor("w", {4}, 0, 0);

TEST(Gguf, ListsEntriesWithTorchShapesAndFileOffsets) {
  for (const uint32_t version : {2U, 3U}) {
    const Gguf file = {.values = {value("general.architecture", 8, text("wan"))},
                       .tensors = {tensor("patch_embedding.weight", {2, 2, 1, 16, 8}, 0, 0),
                                   tensor("blocks.0.ffn.0.weight", {256, 4}, 14, 4096), tensor("bias", {8}, 1, 5024)},
                       .data_bytes = 5024 + 16,
                       .version = version};
    const std::string bytes = file.bytes();
    const TensorList list = parsed(bytes);
    const size_t start = bytes.size() - file.data_bytes;
    ASSERT_EQ(list.entries.size(), 3U);
    EXPECT_EQ(list.entries[0].name, "bias") << "by name";
    EXPECT_EQ(list.entries[0].dtype, Dtype::f16);
    EXPECT_EQ(list.entries[0].offset, start + 5024);
    EXPECT_EQ(list.entries[1].shape, (std::vector<int64_t>{4, 256}));
    EXPECT_EQ(list.entries[1].dtype, Dtype::q6_k);
    EXPECT_EQ(list.entries[1].bytes, 4 * 210U);
    EXPECT_EQ(list.entries[1].elements(), 1024U);
    EXPECT_EQ(list.entries[2].shape, (std::vector<int64_t>{8, 16, 1, 2, 2}));
    EXPECT_EQ(list.entries[2].offset, start);
    EXPECT_EQ(list.metadata.at("general.architecture"), "wan");
  }
}

TEST(Gguf, KeepsRelevantMetadata) {
  const std::string tokens = raw<uint32_t>(8) + raw<uint64_t>(2) + text("</s>") +
                             text(
                                 "\xE2\x96\x81"
                                 "a");
  const TensorList list = parsed(Gguf{
      .values = {value("tokenizer.ggml.tokens", 9, tokens), value("tokenizer.ggml.eos_token_id", 4, raw<uint32_t>(1)),
                 value("tokenizer.ggml.add_space_prefix", 7, raw<uint8_t>(1)), value("general.name", 8, text("x")),
                 value("wan.list", 9, raw<uint32_t>(8) + raw<uint64_t>(1) + text("y"))}}
                                     .bytes());
  const std::map<std::string, std::string> expected = {{"tokenizer.ggml.tokens",
                                                        "[\"</s>\",\"\xE2\x96\x81"
                                                        "a\"]"},
                                                       {"tokenizer.ggml.eos_token_id", "1"},
                                                       {"tokenizer.ggml.add_space_prefix", "true"}};
  EXPECT_EQ(list.metadata, expected);
}

TEST(Gguf, RestoresTheShapeOfAFoldedTensor) {
  const TensorList list = parsed(
      Gguf{.values = {shape_value("w", {8, 1, 4})}, .tensors = {tensor("w", {32}, 8, 0)}, .data_bytes = 34}.bytes());
  EXPECT_EQ(list.entries[0].shape, (std::vector<int64_t>{8, 1, 4}));
}

/// A 3D convolution has the shape [outputs, inputs, frames, height, width]. ggml has only four dimensions, so its files
/// merge outputs and inputs.
TEST(Gguf, RestoresFiveDimensionsOfAFoldedConvolution) {
  const auto shape = [](const std::vector<uint64_t>& dims, uint64_t bias, const std::vector<std::string>& values = {}) {
    uint64_t count = 1;
    for (const uint64_t size : dims) count *= size;
    const Gguf file = {
        .values = values,
        .tensors = {tensor("c.weight", dims, 0, 0), tensor("c.bias", {bias}, 0, (4 * count + 31) / 32 * 32)},
        .data_bytes = (4 * count + 31) / 32 * 32 + 4 * bias};
    return parsed(file.bytes()).entries[1].shape;
  };
  EXPECT_EQ(shape({3, 3, 1, 12}, 4), (std::vector<int64_t>{4, 3, 1, 3, 3}));
  EXPECT_EQ(shape({3, 3, 2, 12}, 12), (std::vector<int64_t>{12, 2, 3, 3})) << "2-D";
  EXPECT_EQ(shape({3, 3, 2, 12}, 5), (std::vector<int64_t>{12, 2, 3, 3})) << "not of this bias";
  EXPECT_EQ(shape({3, 3, 1, 12}, 4, {shape_value("c.weight", {12, 1, 3, 3})}), (std::vector<int64_t>{12, 1, 3, 3}));
}

TEST(Gguf, AlignsDataByTheFilesAlignment) {
  const Gguf file = {.values = {value("general.alignment", 4, raw<uint32_t>(128))},
                     .tensors = {kOneF32, tensor("x", {4}, 0, 128)},
                     .data_bytes = 128 + 16,
                     .alignment = 128};
  EXPECT_EQ(parsed(file.bytes()).entries[1].offset % 128, 0U);
}

TEST(Gguf, OpensAsATensorFile) {
  const TemporaryFolder folder;
  write_text(folder / "a.bin", Gguf{.tensors = {kOneF32}, .data_bytes = 16}.bytes());
  const TensorFile file(folder / "a.bin");
  ASSERT_NE(file.find("w"), nullptr) << "by its first bytes, whatever its name";
  EXPECT_EQ(file.data(*file.find("w")).back(), std::byte{1});
}

TEST(Gguf, RefusesTruncatedFiles) {
  const std::string whole =
      Gguf{.values = {value("general.architecture", 8, text("wan"))}, .tensors = {kOneF32}, .data_bytes = 16}.bytes();
  for (size_t length = 4; length < whole.size(); ++length)
    EXPECT_TRUE(throws_error([&] { parsed(whole.substr(0, length)); }, {"wan.gguf", "truncated"})) << length;
}

struct MalformedGguf {
  const char* name;
  std::string bytes;
  std::vector<std::string> parts;  // texts that the cause must contain
};

std::vector<MalformedGguf> malformed_ggufs() {
  const auto of_type = [](uint32_t type) {
    return Gguf{.tensors = {tensor("w", {256}, type, 0)}, .data_bytes = 1024}.bytes();
  };
  const std::string start = "GGUF" + raw<uint32_t>(3);
  return {
      {"VersionOne", Gguf{.version = 1}.bytes(), {"version 1"}},
      {"BigEndian", Gguf{.version = 3 << 24}.bytes(), {"version 50331648"}},
      {"MoreTensorsThanBytes", start + raw<uint64_t>(uint64_t{1} << 62) + raw<uint64_t>(0), {"truncated", "tensors"}},
      {"MoreValuesThanBytes", start + raw<uint64_t>(0) + raw<uint64_t>(~uint64_t{0}), {"truncated", "key-values"}},
      {"NameBeyondTheFile",
       start + raw<uint64_t>(1) + raw<uint64_t>(0) + raw<uint64_t>(~uint64_t{0}) + std::string(64, 'a'),
       {"truncated", "18446744073709551615 bytes"}},
      {"UnknownValueType", Gguf{.values = {value("a", 13, std::string(8, 0))}}.bytes(), {"\"a\"", "type 13"}},
      {"ArrayOfArrays",
       Gguf{.values = {value("a", 9, raw<uint32_t>(9) + raw<uint64_t>(1) + std::string(32, 0))}}.bytes(),
       {"\"a\"", "array of the unknown type 9"}},
      {"ArrayBeyondTheFile",
       Gguf{.values = {value("a", 9, raw<uint32_t>(10) + raw<uint64_t>(uint64_t{1} << 61))}}.bytes(),
       {"truncated", "elements of \"a\""}},
      {"KeyTwice",
       Gguf{.values = {value("a", 7, raw<uint8_t>(1)), value("a", 7, raw<uint8_t>(1))}}.bytes(),
       {"\"a\"", "twice"}},
      {"TensorTwice",
       Gguf{.tensors = {kOneF32, tensor("w", {4}, 0, 32)}, .data_bytes = 64}.bytes(),
       {"\"w\"", "twice"}},
      {"NameIsNotUtf8", Gguf{.tensors = {tensor("\xff", {4}, 0, 0)}, .data_bytes = 16}.bytes(), {"not UTF-8"}},
      {"AlignmentOfThree",
       Gguf{.values = {value("general.alignment", 4, raw<uint32_t>(3))}}.bytes(),
       {"general.alignment is 3"}},
      {"AlignmentOfZero",
       Gguf{.values = {value("general.alignment", 4, raw<uint32_t>(0))}}.bytes(),
       {"general.alignment is 0"}},
      {"SixDimensions",
       Gguf{.tensors = {tensor("w", {1, 1, 1, 1, 1, 1}, 0, 0)}, .data_bytes = 4}.bytes(),
       {"\"w\"", "6 dimensions"}},
      {"ShapeOverflows",
       Gguf{.tensors = {tensor("w", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0)}}.bytes(),
       {"\"w\"", "overflows"}},
      {"DimensionBeyond63Bits",
       Gguf{.tensors = {tensor("w", {~uint64_t{0}}, 0, 0)}}.bytes(),
       {"\"w\"", "dimension of 18446744073709551615"}},
      {"RowsOfBrokenBlocks",
       Gguf{.tensors = {tensor("w", {128, 2}, 12, 0)}, .data_bytes = 144}.bytes(),
       {"\"w\"", "whole blocks of 256"}},
      {"Iq2S", of_type(22), {"\"w\"", "IQ2_S", "not supported"}},
      {"Mxfp4", of_type(39), {"\"w\"", "MXFP4", "not supported"}},
      {"EightBitIntegers", of_type(24), {"\"w\"", "I8", "not supported"}},
      {"UnknownType", of_type(4), {"\"w\"", "type 4 is unknown"}},
      {"OffsetIsNotAligned",
       Gguf{.tensors = {tensor("w", {4}, 0, 16)}, .data_bytes = 64}.bytes(),
       {"\"w\"", "not a multiple of 32"}},
      {"OffsetBeyondTheFile",
       Gguf{.tensors = {tensor("w", {4}, 0, ~uint64_t{31})}, .data_bytes = 64}.bytes(),
       {"truncated", "\"w\""}},
      {"Overlap",
       Gguf{.tensors = {tensor("v", {16}, 0, 0), tensor("w", {4}, 0, 32)}, .data_bytes = 64}.bytes(),
       {"\"w\"", "overlaps", "\"v\""}},
      {"ShapeOfAnotherSize",
       Gguf{.values = {shape_value("w", {5})}, .tensors = {kOneF32}, .data_bytes = 16}.bytes(),
       {"\"w\"", "orig_shape", "another size"}},
      {"NegativeShape",
       Gguf{.values = {shape_value("w", {-4})}, .tensors = {kOneF32}, .data_bytes = 16}.bytes(),
       {"orig_shape.w", "not a shape"}},
  };
}

class MalformedGgufs : public ::testing::TestWithParam<MalformedGguf> {};

TEST_P(MalformedGgufs, AreRefusedWithFileAndReason) {
  std::vector<std::string> parts = GetParam().parts;
  parts.emplace_back("wan.gguf");
  EXPECT_TRUE(throws_error([&] { parsed(GetParam().bytes); }, parts));
}

INSTANTIATE_TEST_SUITE_P(Gguf, MalformedGgufs, ::testing::ValuesIn(malformed_ggufs()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sparsereel::models
