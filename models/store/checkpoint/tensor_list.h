// Named tensors as a file lists them: offset, dtype and shape. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/dtype.h"

namespace sparsereel::models {

/// The smallest unit of storage: one element, or for packed dtypes a block of elements within a row.
struct Block {
  int64_t elements;
  size_t bytes;
};
Block block_of(Dtype dtype);
inline bool is_packed(Dtype dtype) {
  return block_of(dtype).elements > 1;
}
size_t size_of(Dtype dtype);         // bytes of an element, or of a block if packed
std::string_view name(Dtype dtype);  // "F32", as the formats write it

/// Returns the bytes of a contiguous tensor. Returns nullopt if the number does not fit into 63 bits, or if the
/// elements are not a whole number of blocks. Sizes that overflow are refused even if another dimension is zero,
/// because strides are computed from them.
std::optional<uint64_t> byte_count(const std::vector<int64_t>& shape, Dtype dtype);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  size_t offset = 0;                  // bytes from the start of the file
  size_t bytes = 0;                   // from the first element to the end of the last
  bool halves_swapped = false;        // the file stores the second half of the rows first
  std::vector<int64_t> strides = {};  // in elements, one per dimension; empty if contiguous
  // Set if other rows lie between the tensor's rows: it has groups of group_rows consecutive rows. A group begins
  // group_step rows after the beginning of the previous group.
  int64_t group_rows = 0, group_step = 0;  // group_rows is 0 if the rows are consecutive

  uint64_t elements() const;
};

/// Returns the bytes of a row: all elements with the same first index. The tensor must have at least one row, and no
/// strides.
size_t bytes_of_row(const TensorEntry& entry);

/// Returns the bytes of the tensor's own rows, without other rows between groups.
uint64_t own_bytes(const TensorEntry& entry);

/// Returns the bytes from the first element to the end of the last, computed from shape, strides, groups of rows and
/// dtype; nullopt if the number does not fit into 63 bits.
std::optional<uint64_t> covered_bytes(const TensorEntry& entry);

/// The tensors and metadata of a file. Every entry is inside of the file.
struct TensorList {
  std::vector<TensorEntry> entries;  // sorted by name
  std::map<std::string, std::string> metadata;
};

}  // namespace sparsereel::models
