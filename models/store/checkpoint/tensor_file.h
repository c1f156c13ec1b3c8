// A memory-mapped file of named tensors, whatever its format. No torch.
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
