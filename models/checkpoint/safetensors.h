// Reads and writes safetensors files (https://github.com/huggingface/safetensors, "Format"). Memory-mapped, no torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::models {

enum class Dtype { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean, f8_e4m3, f8_e5m2 };

size_t size_of(Dtype dtype);
std::string_view name(Dtype dtype);  // "F32", as in the file

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  size_t offset = 0;  // bytes from the start of the file
  size_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // by name
  std::map<std::string, std::string> metadata;
};

/// Parses and checks the header at the start of a file of file_size bytes; `file` holds at least its first
/// min(file_size, 8 + header length) bytes. Every offset, dtype and shape is checked: in range, no overlap, no hole,
/// size = product of the shape. Throws Error naming `path` and the tensor. The fuzz entry.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, uint64_t file_size,
                                           const std::string& path);

/// A memory-mapped file, mapped as long as the object lives. Throws Error when it is missing, truncated or not
/// well-formed.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  const TensorEntry* find(std::string_view name) const;             // nullptr where absent
  std::span<const std::byte> data(const TensorEntry& entry) const;  // as they lie in the file: not aligned, read-only
  void prefetch(const TensorEntry& entry) const;                    // hint: the whole tensor is about to be read
  void release(
      const TensorEntry& entry) const;  // hint: its pages need not stay in memory; reading it again is still right
  std::shared_ptr<const void> mapping() const { return mapping_; }  // keeps the mapping alive for tensors that alias it

 private:
  std::filesystem::path path_;
  std::shared_ptr<const void> mapping_;
  size_t size_ = 0;
  SafetensorsHeader header_;
};

/// A tensor to be written; data is contiguous, row-major, little-endian.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

/// Writes atomically (temporary file beside it, fsync, rename): the file appears whole or not at all.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace sparsereel::models
