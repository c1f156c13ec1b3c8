// The two orders in which files keep the queries, keys and values of a layer, under the same names. No torch.
#pragma once

#include <optional>

#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {

enum class FusedRows {
  by_kind,  // all queries, all keys, all values: ComfyUI's files and all that are made from them
  by_head,  // queries, keys and values of the first head, then those of the next: the authors' files
};

/// Tells the order by the layers' numbers, for tensors under the authors' names. The rows of queries and keys pass a
/// norm, so their lengths are free; those of values are not. The right order therefore explains the mean lengths of the
/// heads' rows better than the wrong one (by an analysis of variance over some rows of some layers). Returns nothing if
/// neither order explains them, or if no numbers can be read because several tensors hold them.
std::optional<FusedRows> fused_rows_by_numbers(const TensorTable& tensors, const StoredWeights& weights);

/// Tells the order by the numbers or, if they do not tell, by the form of the file: the authors publish indexes of
/// shards with names without prefixes, in 16 bits, and with all of the modulation.
FusedRows fused_rows_of(const TensorTable& tensors, const StoredWeights& weights);

}  // namespace sparsereel::models
