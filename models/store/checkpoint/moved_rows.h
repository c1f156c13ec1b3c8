// Rows of a matrix that lie elsewhere in other programs' files: joined with other layers, or in another order. No
// torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// The place of a layer's rows in the other program's layer: {"blocks.*.attn.to_k", "blocks.*.attn.qkv", 1, 3}.
struct MovedRows {
  std::string first = {};       // the layer; a * stands for a number, as in NameMap
  std::string second = {};      // the layer that holds its rows
  int64_t part = 0, parts = 1;  // index and number of equal parts, stacked
  bool halves_swapped = false;  // the layer's first half is the second half of these rows
};

/// Returns the entry for the layer's rows: its shape, its offset, and TensorEntry::halves_swapped. Returns nothing if
/// the rows cannot be divided: there are none, their number does not fit, or packed blocks span several rows.
std::optional<TensorEntry> part_of(const TensorEntry& entry, const MovedRows& rows);

}  // namespace sparsereel::models
