// Tests that files without weights are refused, and that the error tells what kind of file it is.
#include "models/store/checkpoint/tensor_file.h"

#include <utility>

#include "models/store/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::TemporaryFolder;
using test::throws_error;
using test::write_text;

TEST(TensorFile, NamesTheFormatOfAForeignFile) {
  const TemporaryFolder folder;
  const std::string much(600, 'x');
  for (const auto& [start, what] :
       {std::pair<std::string, const char*>("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.", "before version 1.6"),
        {"\x80\x02}q", "pickle of Python"},
        {"\x80\x04\x95", "pickle of Python"},
        {"<!DOCTYPE html><html>", "web page"},
        {"<html><body>", "web page"},
        {"{\"error\": \"Repository not found\"}", "JSON text"},
        {"\x1f\x8b\x08", "gzip"},
        {"\x89HDF\r\n", "HDF5"},
        {"\x93NUMPY", "numpy"},
        {std::string(257, '\0') + "ustar", "tar"}}) {
    write_text(folder / "a.safetensors", start + much);
    EXPECT_TRUE(throws_error([&] { TensorFile(folder / "a.safetensors"); }, {"a.safetensors", what})) << what;
  }
}

/// A safetensors file begins with the length of its header. The length 123 is the byte of a brace, with which JSON
/// begins. The bytes of the other length are those with which a gzip file begins.
TEST(TensorFile, RecognizesSafetensorsForAnyHeaderLength) {
  const TemporaryFolder folder;
  for (const size_t length : {size_t{'{'}, size_t{0x8b1f}}) {
    std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header.resize(length, ' ');
    write_text(
        folder / "a.safetensors",
        std::string({static_cast<char>(length), static_cast<char>(length >> 8), 0, 0, 0, 0, 0, 0}) + header + "x");
    EXPECT_EQ(TensorFile(folder / "a.safetensors").entries().size(), 1U);
  }
}

TEST(TensorFile, CopiesAnyPartOfATensor) {
  const TemporaryFolder folder;
  const std::string first = "0123456", second = "abcdefgh";
  const std::filesystem::path path = folder / "a.safetensors";
  write_safetensors(path, {{"first", Dtype::u8, {7}, std::as_bytes(std::span(first))},
                           {"second", Dtype::u8, {8}, std::as_bytes(std::span(second))}});
  const TensorFile file(path);
  std::string part(3, ' ');
  file.read(*file.find("second"), 2, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "cde");
  file.read(*file.find("first"), 4, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "456");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_TRUE(throws_error([&] { file.read(*file.find("second"), 5, std::as_writable_bytes(std::span(part))); },
                           {"a.safetensors", "shorter"}));
}

TEST(TensorFile, NamesATruncatedFile) {
  const TemporaryFolder folder;
  const std::string data(3 << 16, 'x');
  const std::filesystem::path path = folder / "a.safetensors";
  write_safetensors(path, {{"a", Dtype::u8, {3 << 16}, std::as_bytes(std::span(data))}});
  const TensorFile file(path);
  EXPECT_NO_THROW(file.check_whole());
  std::filesystem::resize_file(path, 1 << 16);
  EXPECT_EQ(file.data(file.entries()[0]).back(), std::byte{0}) << "where nothing is any more";
  EXPECT_TRUE(throws_error([&] { file.check_whole(); }, {"a.safetensors", "shorter"}));
}

}  // namespace
}  // namespace sparsereel::models
