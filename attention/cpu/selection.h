// Predicts which 64 x 64 blocks of attention matter, from pooled queries and keys (by mass: SpargeAttn, arXiv
// 2502.18137, section 3.2).
#pragma once

#include "attention/cpu/problem.h"
#include "attention/cpu/selector.h"

namespace sparsereel::attention::cpu {

/// Every block that holds a visible (query, key) pair: what dense attention computes.
BlockMap visible_blocks(const Problem& problem);

/// Drops the blocks of `map` that hold no visible pair.
void keep_visible(const Problem& problem, BlockMap& map);

/// How many blocks visible_blocks() holds.
int64_t count_visible_blocks(const Problem& problem);

/// Blocks of `map` that are set.
int64_t count_blocks(const BlockMap& map);

/// Counts::mean_blocks of attention under `map`.
int64_t count_mean_blocks(const Problem& problem, const BlockMap& map);

struct Prediction {
  BlockMap map;  // the blocks to compute
  // Ranking::error: sum over query tiles of the errors predicted for the blocks that they drop, over the mean length of
  // the outputs of the tile's head; and how many tiles these are. Tiles of dense heads are not among them.
  double sum_error = 0;
  int64_t tiles = 0;
};

/// The blocks that sparse attention computes. Queries come in tiles of selector.rows and keys in blocks of 64 (real
/// tokens only). Key blocks are ranked by the softmax of pooled q . pooled k * scale (mass), or by the error of the
/// means in their place, which needs problem.mean_cell (error; see mean_error.h). Kept are, of those not forced,
///   topk:  by mass, of each tile the max(1, floor(topk * visible key blocks)) best; by error, as many of all the
///          tiles of a batch entry, wherever they are (budget.h; other parts' too), or of all those of a head where
///          policies differ;
///   cdf:   of each tile the fewest that hold a share of cdf of the sum of all, the crossing block included;
///   error: of each tile the fewest such that the predicted errors of the others add up to at most `error` times the
///          mean length of the head's outputs; maybe none;
///   block_error: those predicted to err by more than `block_error` times the mean length of the outputs, and of each
///          tile at least the best (budget.h; heads are taken together as by topk);
/// plus the forced blocks: text keys (with the block where video meets text), the diagonal of a causal mask, key blocks
/// whose mean cosine similarity is below the head's threshold, and with means (problem.mean_cell) a last video block of
/// fewer than 64 keys. Rows of text queries and of query tiles below the threshold keep every block. Similarity =
/// ||sum of L2-normalised rows||^2 / n^2, with keys less their mean over the sequence.
Prediction predict_blocks(const Problem& problem, const Selector& selector, const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
