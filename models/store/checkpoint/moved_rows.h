// Describes layers whose rows lie elsewhere in other programs' files: joined with rows of other layers, or in another
// order. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// The place of a layer's rows in another program's joined layer: {"blocks.*.attn.to_k", "blocks.*.attn.qkv", 1, 3}.
struct MovedRows {
  std::string first = {};   // the layer; a * stands for a number, as in NameMap
  std::string second = {};  // the other program's layer, which holds the rows
  // `second` consists of `parts` equal parts, stacked; this layer is part number `part`, counted from 0.
  int64_t part = 0, parts = 1;
  bool halves_swapped = false;  // true if the other program stores the second half of the layer's rows first
  /// If not empty, the parts are interleaved: a group of rows of each part, then the next group of each part, and so
  /// on. The text names a tensor beside `second` that has as many elements as a group has rows: "q_norm.weight" has one
  /// for each channel of a head.
  std::string turns_like = {};
};

/// Returns an entry for only those rows of `entry` that belong to the layer: it has their shape, offset and
/// halves_swapped, and groups of `group` rows if the parts are interleaved. Returns nullopt if the rows cannot be
/// divided: there are none, their number is no multiple of the parts, a packed block spans several rows, or `group` is
/// 0 although the parts are interleaved.
std::optional<TensorEntry> part_of(const TensorEntry& entry, const MovedRows& rows, int64_t group = 0);

}  // namespace sparsereel::models
