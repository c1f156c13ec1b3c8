// Predicts which 64 x 64 blocks of attention matter, from pooled queries and keys (SpargeAttn, arXiv 2502.18137,
// section 3.2).
#pragma once

#include <span>

#include "attention/cpu/problem.h"
#include "attention/policy.h"

namespace sparsereel::attention::cpu {

/// Every block that holds a visible (query, key) pair: what dense attention computes.
BlockMap visible_blocks(const Problem& problem);

/// Drops the blocks of `map` that hold no visible pair.
void keep_visible(const Problem& problem, BlockMap& map);

/// How many blocks visible_blocks() holds.
int64_t count_visible_blocks(const Problem& problem);

/// Blocks of `map` that are set.
int64_t count_blocks(const BlockMap& map);

/// The blocks that sparse attention computes. heads: one policy a head; selection_rows: queries that share one
/// selection. Queries are averaged over selection_rows and keys over 64 tokens (real tokens only), the softmax of
/// pooled q . pooled k * scale over the key blocks ranks them, and each row keeps, of the blocks that are not forced,
///   topk: the max(1, floor(topk * visible key blocks)) best;
///   cdf:  the fewest whose mass reaches cdf, the crossing block included;
/// plus the forced blocks: text keys (with the block where video meets text), the diagonal of a causal mask, and key
/// blocks whose mean cosine similarity is below the head's threshold. Rows of text queries and of query tiles below the
/// threshold keep every block. Similarity = ||sum of L2-normalised rows||^2 / n^2, with keys less their mean over the
/// sequence.
BlockMap predict_blocks(const Problem& problem, std::span<const HeadPolicy> heads, int64_t selection_rows,
                        const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
