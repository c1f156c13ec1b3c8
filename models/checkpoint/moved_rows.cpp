#include "models/checkpoint/moved_rows.h"

namespace sparsereel::models {

std::optional<TensorEntry> part_of(const TensorEntry& entry, const MovedRows& rows) {
  const int64_t count = entry.shape.empty() ? 0 : entry.shape.front();
  if (count == 0 || count % (rows.parts * (rows.halves_swapped ? 2 : 1)) != 0) return std::nullopt;
  const uint64_t columns = entry.elements() / static_cast<uint64_t>(count);
  if (columns % static_cast<uint64_t>(block_of(entry.dtype).elements) != 0) return std::nullopt;
  TensorEntry part = entry;
  part.shape.front() /= rows.parts;
  part.bytes /= static_cast<size_t>(rows.parts);
  part.offset += static_cast<size_t>(rows.part) * part.bytes;
  part.halves_swapped = rows.halves_swapped;
  return part;
}

}  // namespace sparsereel::models
