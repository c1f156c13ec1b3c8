// Rows of a matrix that lie elsewhere in another program's files: with those of other layers, or in another order. No
// torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// Where a layer's rows are in the other program's: {"blocks.*.attn.to_k", "blocks.*.attn.qkv", 1, 3}.
struct MovedRows {
  std::string first = {};       // the layer, with a * for a number as in NameMap
  std::string second = {};      // the one that holds its rows
  int64_t part = 0, parts = 1;  // which of so many equal parts, below each other
  bool halves_swapped = false;  // of these rows the second half is the layer's first
};

/// The layer's part of a file's entry: its shape, its place, and TensorEntry::halves_swapped. Nothing where the rows
/// are not to be parted so: there are none, their number does not fit, or packed blocks hold several.
std::optional<TensorEntry> part_of(const TensorEntry& entry, const MovedRows& rows);

}  // namespace sparsereel::models
