// Tests that reading a written safetensors file gives the same tensors, and that errors about malformed files name the
// file.
#include "models/store/checkpoint/safetensors.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <ctime>
#include <limits>

#include "models/files/json_text.h"
#include "models/store/checkpoint/tensor_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::names_in;
using test::read_text;
using test::TemporaryFolder;
using test::throws_error;
using test::write_text;

/// Returns the bytes of a file: the header's length, the header, and `data_bytes` bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, '\x01');
}

TensorList parse(const std::string& bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes)), bytes.size(), "weights.safetensors");
}

/// Returns the header of a file with one tensor "w".
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

struct Malformed {
  const char* name;
  std::string bytes;
  std::vector<std::string> parts;  // texts that the cause must contain
};

std::vector<Malformed> malformed_files() {
  const std::string f32 = R"("F32")", whole = std::string(8, '\0');
  const auto length_only = [](uint64_t length) {
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes;
  };
  const std::string two =
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":)";
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += R"({"a":)";
  return {
      {"Empty", "", {"truncated"}},
      {"ShorterThanTheLength", "\x01\x02", {"truncated"}},
      {"LengthBeyondTheFile", file_of("{}", 0).substr(0, 9), {"truncated", "header length 2"}},
      {"LengthOf2To63", length_only(uint64_t{1} << 63) + "{}", {"header length 9223372036854775808"}},
      {"LengthOf2To64Minus1",
       length_only(std::numeric_limits<uint64_t>::max()) + "{}",
       {"header length 18446744073709551615"}},
      {"LengthAboveTheFormatsLimit", length_only(100'000'001) + "{}", {"header length 100000001"}},
      {"ZeroLengthHeader", whole, {"header", "not valid JSON"}},
      {"NotJson", file_of("{\"w\":", 0), {"header", "not valid JSON", "line 1"}},
      {"Array", file_of("[1,2]", 0), {"header", "not a JSON object"}},
      {"DeepNesting", file_of(deep, 0), {"header", "nested deeper"}},
      {"DeepArrays", file_of(std::string(100000, '['), 0), {"header", "nested deeper"}},
      {"DuplicateTensor",
       file_of(
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           1),
       {"\"w\"", "twice"}},
      {"DuplicateField",
       file_of(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
       {"\"dtype\"", "twice"}},
      {"NotUtf8", file_of("{\"\xff\xfe\":{}}", 0), {"header", "not valid JSON", "UTF-8"}},
      {"NumberTooLarge", file_of(one(f32, "[1e999]", "[0,4]"), 4), {"header", "not valid JSON"}},
      {"EntryIsNotAnObject", file_of(R"({"w":7})", 0), {"\"w\"", "object"}},
      {"NoDtype", file_of(R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4), {"\"w\"", "no dtype"}},
      {"NoShape", file_of(R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", 4), {"\"w\"", "no shape"}},
      {"NoOffsets", file_of(R"({"w":{"dtype":"F32","shape":[1]}})", 4), {"\"w\"", "no data_offsets"}},
      {"DtypeIsANumber", file_of(one("32", "[1]", "[0,4]"), 4), {"\"w\"", "dtype is not a string"}},
      {"UnknownDtype", file_of(one(R"("F4")", "[1]", "[0,4]"), 4), {"\"w\"", "dtype \"F4\""}},
      {"ShapeIsANumber", file_of(one(f32, "1", "[0,4]"), 4), {"\"w\"", "shape is not an array"}},
      {"NegativeDimension", file_of(one(f32, "[-1]", "[0,4]"), 4), {"\"w\"", "shape holds", "-1"}},
      {"FractionalDimension", file_of(one(f32, "[1.5]", "[0,4]"), 4), {"\"w\"", "shape holds", "1.5"}},
      {"DimensionBeyond63Bits",
       file_of(one(f32, "[9223372036854775808]", "[0,4]"), 4),
       {"\"w\"", "shape holds", "9223372036854775808"}},
      {"ProductOverflows", file_of(one(f32, "[4294967296,4294967296]", "[0,0]"), 0), {"\"w\"", "shape overflows"}},
      {"ProductOverflowsToASmallNumber",
       file_of(one(f32, "[4611686018427387905,4]", "[0,16]"), 16),
       {"\"w\"", "shape overflows"}},
      {"OverflowHiddenByAZero",
       file_of(one(f32, "[4294967296,4294967296,0]", "[0,0]"), 0),
       {"\"w\"", "shape overflows"}},
      {"TooManyDimensions",
       file_of(one(
                   f32,
                   "[1" + std::string(128, ' ') +
                       [] {
                         std::string s;
                         for (int i = 0; i < 64; ++i) s += ",1";
                         return s;
                       }() +
                       "]",
                   "[0,4]"),
               4),
       {"\"w\"", "65 dimensions"}},
      {"OffsetsAreNotAPair", file_of(one(f32, "[1]", "[0,4,8]"), 4), {"\"w\"", "data_offsets is not a pair"}},
      {"OffsetIsAString", file_of(one(f32, "[1]", R"(["0",4])"), 4), {"\"w\"", "data_offsets holds"}},
      {"NegativeOffset", file_of(one(f32, "[1]", "[-4,0]"), 4), {"\"w\"", "data_offsets holds", "-4"}},
      {"OffsetsRunBackwards", file_of(one(f32, "[1]", "[4,0]"), 4), {"\"w\"", "[4, 0]", "backwards"}},
      {"OffsetsBeyondTheFile",
       file_of(one(f32, "[2]", "[0,8]"), 4),
       {"\"w\"", "truncated", "[0, 8]", "outside of the file"}},
      {"HugeOffsets",
       file_of(one(f32, "[1]", "[9223372036854775803,9223372036854775807]"), 4),
       {"\"w\"", "outside of the file"}},
      {"SizeDisagreesWithShape", file_of(one(f32, "[2]", "[0,4]"), 4), {"\"w\"", "4 bytes", "need 8"}},
      {"Overlap", file_of(two + "[2,6]}}", 6), {"\"b\"", "overlap"}},
      {"Hole", file_of(two + "[5,9]}}", 9), {"\"b\"", "hole of 1 byte"}},
      {"HoleAtTheStart", file_of(one(f32, "[1]", "[4,8]"), 8), {"\"w\"", "hole of 4 bytes"}},
      {"BytesOfNoTensor", file_of(one(f32, "[1]", "[0,4]"), 7), {"3 bytes", "belong to no tensor"}},
      {"MetadataIsNotAnObject", file_of(R"({"__metadata__":[]})", 0), {"__metadata__"}},
      {"MetadataValueIsNotAString", file_of(R"({"__metadata__":{"step":1}})", 0), {"__metadata__", "\"step\""}},
  };
}

class MalformedSafetensors : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedSafetensors, IsRefusedWithFileAndReasonFromMemoryAndDisk) {
  const Malformed& malformed = GetParam();
  std::vector<std::string> parts = malformed.parts;
  parts.emplace_back("weights.safetensors");
  EXPECT_TRUE(throws_error([&] { parse(malformed.bytes); }, parts));
  const TemporaryFolder folder;
  write_text(folder / "weights.safetensors", malformed.bytes);
  EXPECT_TRUE(throws_error([&] { TensorFile(folder / "weights.safetensors"); }, parts));
}

INSTANTIATE_TEST_SUITE_P(Safetensors, MalformedSafetensors, ::testing::ValuesIn(malformed_files()),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(Safetensors, KeepsErrorMessagesShort) {
  const std::string name(1'000'000, 'n');
  try {
    parse(file_of("{\"" + name + "\":7}", 0));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 1000U);
  }
  try {
    parse(file_of("{\"" + name, 0));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 1000U);
  }
}

TEST(Safetensors, SortsEntriesByNameWithFileOffsets) {
  const auto header = parse(file_of(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"F16","shape":[1,2],"data_offsets":[2,6]},"__metadata__":{"format":"pt"}}   )",
      6));
  ASSERT_EQ(header.entries.size(), 2U);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].dtype, Dtype::f16);
  EXPECT_EQ(header.entries[0].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(header.entries[0].bytes, 4U);
  EXPECT_EQ(header.entries[0].offset, header.entries[1].offset + 2);
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(Safetensors, AllowsEmptyTensorsAndScalars) {
  const auto header = parse(file_of(
      R"({"none":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
      4));
  EXPECT_EQ(header.entries[0].bytes, 0U);
  EXPECT_EQ(header.entries[1].bytes, 4U);
}

TEST(Safetensors, KnowsNameAndSizeOfEveryDtype) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32, Dtype::i16,
                            Dtype::i8, Dtype::u8, Dtype::boolean, Dtype::f8_e4m3, Dtype::f8_e5m2}) {
    const std::string bytes = std::to_string(size_of(dtype));
    const auto header = parse(file_of(one(in_quotes(name(dtype)), "[1]", "[0," + bytes + "]"), size_of(dtype)));
    EXPECT_EQ(header.entries[0].dtype, dtype);
  }
}

TEST(TensorFile, RefusesMissingFilesAndFolders) {
  const TemporaryFolder folder;
  EXPECT_TRUE(throws_error([&] { TensorFile(folder / "none.safetensors"); }, {"none.safetensors", "No such file"}));
  EXPECT_TRUE(throws_error([&] { TensorFile(folder.path()); }, {folder.path().string(), "not an ordinary file"}));
}

TEST(TensorFile, RecognizesGitLfsPointers) {
  const TemporaryFolder folder;
  for (const char* name : {"a.safetensors", "a.gguf", "a.pth"}) {
    write_text(folder / name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    EXPECT_TRUE(throws_error([&] { TensorFile(folder / name); }, {name, "Git LFS pointer"}));
  }
}

TEST(TensorFile, RefusesTruncatedFiles) {
  const TemporaryFolder folder;
  const std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  write_safetensors(folder / "a.safetensors", {{"w", Dtype::f32, {2, 3}, std::as_bytes(std::span(values))}});
  const std::string whole = read_text(folder / "a.safetensors");
  for (size_t length = 0; length < whole.size(); ++length) {
    write_text(folder / "cut.safetensors", whole.substr(0, length));
    EXPECT_TRUE(throws_error([&] { TensorFile(folder / "cut.safetensors"); }, {"cut.safetensors"})) << length;
  }
}

TEST(TensorFile, ReadsWrittenTensors) {
  const TemporaryFolder folder;
  const std::array<float, 6> values = {1, -2, 3.5F, 4, 5, 6};
  const std::array<uint8_t, 3> bytes = {7, 8, 9};
  const std::filesystem::path path = folder / "a.safetensors";
  write_safetensors(path,
                    {{"bytes", Dtype::u8, {3}, std::as_bytes(std::span(bytes))},
                     {"w", Dtype::f32, {2, 3}, std::as_bytes(std::span(values))}},
                    {{"prompt", "a \"red\" circle"}, {"broken", "\xff"}});
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.safetensors"});

  const TensorFile file(path);
  ASSERT_NE(file.find("w"), nullptr);
  EXPECT_EQ(file.find("v"), nullptr);
  const TensorEntry& w = *file.find("w");
  EXPECT_EQ(w.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(w.offset % sizeof(float), 0U) << "wide elements first, so that they are aligned";
  ASSERT_EQ(file.data(w).size(), sizeof values);
  EXPECT_EQ(std::memcmp(file.data(w).data(), values.data(), sizeof values), 0);
  EXPECT_EQ(std::memcmp(file.data(*file.find("bytes")).data(), bytes.data(), sizeof bytes), 0);
  EXPECT_EQ(file.metadata().at("prompt"), "a \"red\" circle");
  EXPECT_EQ(file.metadata().at("broken"), "\xEF\xBF\xBD") << "bytes that are not UTF-8 are replaced, not an error";
}

TEST(TensorFile, KeepsTheMappingAfterTheFileObjectIsDestroyed) {
  const TemporaryFolder folder;
  const std::array<uint8_t, 1> byte = {77};
  write_safetensors(folder / "a.safetensors", {{"w", Dtype::u8, {1}, std::as_bytes(std::span(byte))}});
  std::shared_ptr<const void> mapping;
  const std::byte* data = nullptr;
  {
    const TensorFile file(folder / "a.safetensors");
    mapping = file.mapping();
    data = file.data(*file.find("w")).data();
    file.prefetch(*file.find("w"));
    file.release(*file.find("w"));
  }
  EXPECT_EQ(*data, std::byte{77});
}

TEST(TensorFile, ReadsOnlyTheHeaderWhenOpened) {
  const TemporaryFolder folder;
  const uint64_t bytes = uint64_t{11} << 30;
  const std::string size = std::to_string(bytes);
  const std::string header = R"({"w":{"dtype":"U8","shape":[)" + size + R"(],"data_offsets":[0,)" + size + "]}}";
  write_text(folder / "huge.safetensors", file_of(header, 0));
  if (::truncate((folder / "huge.safetensors").c_str(), static_cast<off_t>(8 + header.size() + bytes)) != 0)
    GTEST_SKIP() << "this file system has no sparse files of that size";
  const std::clock_t start = std::clock();  // CPU time of this process, so a busy machine does not matter
  const TensorFile file(folder / "huge.safetensors");
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 0.2);
  EXPECT_EQ(file.data(*file.find("w")).size(), bytes);
  EXPECT_EQ(file.data(*file.find("w")).back(), std::byte{0});
}

TEST(WriteSafetensors, RefusesMisshapedDataAndDuplicateNames) {
  const TemporaryFolder folder;
  const std::array<std::byte, 4> data = {};
  const auto write = [&](const std::vector<TensorView>& tensors) {
    write_safetensors(folder / "a.safetensors", tensors);
  };
  EXPECT_TRUE(throws_error([&] { write({{"w", Dtype::f32, {2}, data}}); }, {"a.safetensors", "\"w\"", "4 bytes"}));
  EXPECT_TRUE(throws_error([&] { write({{"w", Dtype::f32, {-1}, data}}); }, {"a.safetensors", "\"w\""}));
  EXPECT_TRUE(throws_error(
      [&] {
        write({{"w", Dtype::f32, {1}, data}, {"w", Dtype::f32, {1}, data}});
      },
      {"a.safetensors", "\"w\"", "twice"}));
  EXPECT_TRUE(throws_error(
      [&] {
        write({{"__metadata__", Dtype::f32, {1}, data}});
      },
      {"a.safetensors", "__metadata__"}));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(WriteSafetensors, RefusesPackedTensors) {
  const TemporaryFolder folder;
  const std::array<std::byte, 34> block = {};
  EXPECT_TRUE(throws_error(
      [&] {
        write_safetensors(folder / "a.safetensors", {{"w", Dtype::q8_0, {32}, block}});
      },
      {"a.safetensors", "\"w\"", "cannot hold Q8_0"}));
}

TEST(WriteSafetensors, KeepsTheOldFileIfTheDiskIsFull) {
  const TemporaryFolder folder;
  write_text(folder / "a.safetensors", "old");
  const std::vector<std::byte> data(1 << 20);
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {1 << 16, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const auto outcome = throws_error(
      [&] {
        write_safetensors(folder / "a.safetensors", {{"w", Dtype::u8, {1 << 20}, data}});
      },
      {(folder / "a.safetensors").string(), "cannot write", "File too large"});
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(outcome);
  EXPECT_EQ(read_text(folder / "a.safetensors"), "old");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.safetensors"});
}

}  // namespace
}  // namespace sparsereel::models
