// Predicts which 64 x 64 blocks of attention matter, from the means of groups of queries and keys. Ranking by mass
// follows SpargeAttn (arXiv 2502.18137, section 3.2).
#pragma once

#include "attention/cpu/kernel_params.h"
#include "attention/cpu/selector.h"

namespace sparsereel::attention::cpu {

/// Returns the map of all blocks that hold a visible pair of query and key: the blocks that dense attention computes.
BlockMap visible_blocks(const KernelParams& params);

/// Clears the blocks of `map` that hold no visible pair.
void keep_visible(const KernelParams& params, BlockMap& map);

/// Returns the number of blocks in visible_blocks().
int64_t count_visible_blocks(const KernelParams& params);

int64_t count_blocks(const BlockMap& map);

/// Returns the Counts::mean_blocks of a call that computes the blocks of `map`.
int64_t count_mean_blocks(const KernelParams& params, const BlockMap& map);

struct Prediction {
  BlockMap map;  // the blocks to compute
  // For Ranking::error, sum over query tiles of the predicted errors of their dropped blocks, divided by the mean
  // output length of the tile's head. `tiles` is the number of these tiles. Tiles of dense heads are not included.
  double sum_error = 0;
  int64_t tiles = 0;
};

/// Returns the blocks that sparse attention computes. Queries are in tiles of selector.rows and keys in blocks of 64;
/// padding is left out. Ranking::mass ranks key blocks by the softmax of scale * mean query . mean key. Ranking::error
/// ranks them by the error of the means in their place (mean_error.h), and needs params.mean_cell.
/// Among the blocks that are not forced, each selection keeps these:
///   topk: ranked by mass, the max(1, floor(topk * visible key blocks)) best of each tile; ranked by error, as many in
///         total over all tiles of a batch entry, including heads of other ranks (budget.h), or over all tiles of a
///         head if heads have different policies;
///   cdf: per tile, the fewest that hold a share of cdf of the total, including the block that reaches it;
///   error: per tile, the fewest such that the predicted errors of the others sum to at most `error` times the mean
///         length of the head's outputs; this may be no block;
///   block_error: those with a predicted error above `block_error` times the mean length of the outputs, and at least
///         the best of each tile (budget.h; heads are grouped as for topk).
/// Forced blocks are always kept: text keys (including the block where video meets text) and the diagonal of a causal
/// mask. Key blocks whose mean cosine similarity is below the head's threshold are forced too. With means, a last video
/// block of fewer than 64 keys is forced as well. Text queries keep every block, and so do query tiles whose similarity
/// is below the threshold. Similarity is ||sum of L2-normalized rows||^2 / n^2; for keys, the mean of all keys is
/// subtracted first.
Prediction predict_blocks(const KernelParams& params, const Selector& selector, const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
