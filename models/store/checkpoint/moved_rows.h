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
  /// If not empty, the parts are interleaved: a group of rows of each part, then the next group of each. A group has as
  /// many rows as this tensor beside `second` has: "q_norm.weight", one number for each channel of a head.
  std::string turns_like = {};
};

/// Returns the entry for the layer's rows: its shape, its offset, TensorEntry::halves_swapped, and groups if the parts
/// are interleaved in groups of `group` rows. Returns nothing if the rows cannot be divided: there are none, their
/// number does not fit, packed blocks span several rows, or the groups have no size.
std::optional<TensorEntry> part_of(const TensorEntry& entry, const MovedRows& rows, int64_t group = 0);

}  // namespace sparsereel::models
