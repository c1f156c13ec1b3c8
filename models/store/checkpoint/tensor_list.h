// Named tensors as a file lists them: where they lie, in which type and shape. No torch.
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

}  // namespace sparsereel::models
