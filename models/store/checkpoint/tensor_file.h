// A memory-mapped file of named tensors, whatever its format. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/dtype.h"
#include "models/files/mapped_file.h"

namespace sparsereel::models {

/// What lies together: an element, or of packed tensors a block of a row.
struct Block {
  int64_t elements;
  size_t bytes;
};
Block block_of(Dtype dtype);
inline bool is_packed(Dtype dtype) {
  return block_of(dtype).elements > 1;
}
size_t size_of(Dtype dtype);         // bytes of an element; of a block where it is packed
std::string_view name(Dtype dtype);  // "F32", as the formats write it

/// Bytes of a contiguous tensor; nothing where they do not fit into 63 bits, or the elements are no whole blocks. Zero
/// dimensions do not hide an overflow of the others: strides are made of them.
std::optional<uint64_t> byte_count(const std::vector<int64_t>& shape, Dtype dtype);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  size_t offset = 0;                  // bytes from the start of the file
  size_t bytes = 0;                   // from there to the end of its last element
  bool halves_swapped = false;        // of its rows: the file has the second half first
  std::vector<int64_t> strides = {};  // in elements, one a dimension; empty: contiguous

  uint64_t elements() const;
};

/// Bytes from the tensor's first element to the end of its last one, by shape, strides and dtype; nothing where they do
/// not fit into 63 bits.
std::optional<uint64_t> covered_bytes(const TensorEntry& entry);

/// What a file says of its tensors. Every entry lies inside of it.
struct TensorList {
  std::vector<TensorEntry> entries;  // by name
  std::map<std::string, std::string> metadata;
};

/// Mapped as long as the object lives; its first bytes tell the format. Throws Error when it is missing, truncated or
/// not well-formed.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorEntry>& entries() const { return list_.entries; }  // by name
  const std::map<std::string, std::string>& metadata() const { return list_.metadata; }
  const TensorEntry* find(std::string_view name) const;  // nullptr where absent
  /// The elements, one after the other: not aligned, read-only. Throws Error where the tensor has strides.
  std::span<const std::byte> data(const TensorEntry& entry) const;
  /// The same of any tensor, with what lies between the elements of one that has strides.
  std::span<const std::byte> covered(const TensorEntry& entry) const {
    return mapping_->bytes().subspan(entry.offset, entry.bytes);
  }
  void prefetch(const TensorEntry& entry) const;  // hint: the whole tensor is about to be read
  void release(
      const TensorEntry& entry) const;  // hint: its pages need not stay in memory; reading it again is still right
  /// The file's bytes; keeps the mapping alive for tensors that alias it.
  std::shared_ptr<const void> mapping() const { return {mapping_, mapping_->bytes().data()}; }
  /// Throws Error where the file got shorter since it was opened.
  void check_whole() const { mapping_->check_whole(); }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> mapping_;
  TensorList list_;
};

}  // namespace sparsereel::models
