// Computes the entry for a part of a matrix's rows.
#include "models/store/checkpoint/moved_rows.h"

namespace sparsereel::models {
namespace {

/// Returns the distance in bytes between row i and row i + `rows`.
size_t bytes_between(const TensorEntry& entry, int64_t rows) {
  if (entry.strides.empty()) return static_cast<size_t>(rows) * bytes_of_row(entry);
  return static_cast<size_t>(rows * entry.strides.front()) * size_of(entry.dtype);
}

}  // namespace

std::optional<TensorEntry> part_of(const TensorEntry& entry, const MovedRows& rows, int64_t group) {
  const int64_t count = entry.shape.empty() ? 0 : entry.shape.front();
  const bool takes_turns = !rows.turns_like.empty();
  if (takes_turns && (group < 1 || !entry.strides.empty())) return std::nullopt;
  const int64_t unit = takes_turns ? group : rows.halves_swapped ? 2 : 1;
  if (count == 0 || unit > count / rows.parts || count % (rows.parts * unit) != 0) return std::nullopt;
  const uint64_t columns = entry.elements() / static_cast<uint64_t>(count);
  if (columns % static_cast<uint64_t>(block_of(entry.dtype).elements) != 0) return std::nullopt;
  TensorEntry part = entry;
  part.shape.front() /= rows.parts;
  part.halves_swapped = rows.halves_swapped;
  if (takes_turns) {
    part.group_rows = group;
    part.group_step = rows.parts * group;
  }
  part.bytes = *covered_bytes(part);
  part.offset += static_cast<size_t>(rows.part) * bytes_between(entry, takes_turns ? group : part.shape.front());
  return part;
}

}  // namespace sparsereel::models
