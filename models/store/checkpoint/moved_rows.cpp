// Computes the entry for a part of a matrix's rows.
#include "models/store/checkpoint/moved_rows.h"

namespace sparsereel::models {
namespace {

/// Returns the distance in bytes between a row and the row `rows` below it.
size_t bytes_between(const TensorEntry& entry, int64_t rows) {
  const auto stride = entry.strides.empty() ? entry.elements() / static_cast<uint64_t>(entry.shape.front())
                                            : static_cast<uint64_t>(entry.strides.front());
  const Block block = block_of(entry.dtype);
  return static_cast<size_t>(rows) * stride / static_cast<size_t>(block.elements) * block.bytes;
}

}  // namespace

std::optional<TensorEntry> part_of(const TensorEntry& entry, const MovedRows& rows) {
  const int64_t count = entry.shape.empty() ? 0 : entry.shape.front();
  if (count == 0 || count % (rows.parts * (rows.halves_swapped ? 2 : 1)) != 0) return std::nullopt;
  const uint64_t columns = entry.elements() / static_cast<uint64_t>(count);
  if (columns % static_cast<uint64_t>(block_of(entry.dtype).elements) != 0) return std::nullopt;
  TensorEntry part = entry;
  part.shape.front() /= rows.parts;
  part.bytes = *covered_bytes(part);
  part.offset += static_cast<size_t>(rows.part) * bytes_between(entry, part.shape.front());
  part.halves_swapped = rows.halves_swapped;
  return part;
}

}  // namespace sparsereel::models
