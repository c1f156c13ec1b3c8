// A memory-mapped file of named tensors in any supported format. No torch.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/mapped_file.h"
#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

/// Recognizes the format by the file's first bytes. The file stays mapped during this object's lifetime. The
/// constructor throws Error if the file is missing, truncated or malformed.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorEntry>& entries() const { return list_.entries; }  // sorted by name
  const std::map<std::string, std::string>& metadata() const { return list_.metadata; }
  const TensorEntry* find(std::string_view name) const;  // null if there is none
  /// Returns the bytes of a contiguous tensor. They may be unaligned. Throws Error if the tensor has strides or
  /// groups of rows.
  std::span<const std::byte> data(const TensorEntry& entry) const;
  /// Returns the bytes from the first to the last element of any tensor, including the gaps between them.
  std::span<const std::byte> covered(const TensorEntry& entry) const {
    return mapping_->bytes().subspan(entry.offset, entry.bytes);
  }
  /// Copies a contiguous tensor's bytes from byte `first` on into `to` (MappedFile::read()). Throws Error if the tensor
  /// is not contiguous, or if the file became shorter.
  void read(const TensorEntry& entry, size_t first, std::span<std::byte> to) const;
  void prefetch(const TensorEntry& entry) const;  // hint: the whole tensor will be read soon
  // Hint: the tensor's pages may leave memory; they can still be read again.
  void release(const TensorEntry& entry) const;
  /// Returns the file's bytes. The pointer keeps the mapping alive for tensors that alias it.
  std::shared_ptr<const void> mapping() const { return {mapping_, mapping_->bytes().data()}; }
  /// Throws Error if the file became shorter since it was opened.
  void check_whole() const { mapping_->check_whole(); }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> mapping_;
  TensorList list_;
};

}  // namespace sparsereel::models
