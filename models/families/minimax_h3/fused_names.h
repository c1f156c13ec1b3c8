// Tells in which of two orders a file keeps the rows of queries, keys and values of a fused layer. The tensors' names
// are the same in both. No torch.
#pragma once

#include <optional>
#include <string>

#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {

enum class FusedRows {
  by_kind,  // all queries, all keys, all values: ComfyUI's files, and files that were made from these
  by_head,  // queries, keys and values of the first head, then of the next head: the authors' files
};

/// Tells the order from the weights, for tensors under the authors' names. Queries and keys pass a norm, so the lengths
/// of their rows do not matter to the model; the lengths of the values' rows do. The mean lengths of the three kinds
/// therefore differ, and the right order shows this difference more clearly than the wrong one. An analysis of variance
/// over some rows of some layers compares the two orders. Returns nothing if neither order shows a difference, or if
/// the weights cannot be read.
std::optional<FusedRows> fused_rows_by_numbers(const TensorTable& tensors, const StoredWeights& weights);

/// Tells the order from the form of the file. The order is by_head if the file has the form in which the authors
/// publish: an index of shards, with names without prefixes, in 16 bits, and with unpruned modulation. Otherwise it is
/// by_kind.
FusedRows fused_rows_by_form(const TensorTable& tensors, const StoredWeights& weights);

/// Returns a warning that names the file, for a file with fused layers whose weights do not tell the order. `order` is
/// the order in which the file is read. Returns an empty string for a file without fused layers.
std::string doubt_about_rows(const TensorTable& tensors, const StoredWeights& weights, FusedRows order);

}  // namespace sparsereel::models
