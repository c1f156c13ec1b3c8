// Chooses blocks for many tiles at once: keeps those blocks whose means would cause the largest errors.
#pragma once

#include <span>

#include "attention/cpu/ranked_head.h"

namespace sparsereel::attention::cpu {

/// Marks blocks in RankedHead::kept. First marks the best candidate of each tile, so that every tile computes at least
/// one block. Then marks the best other candidates of all tiles of all heads together. The total number of marked
/// blocks is what `topk` would grant if each tile chose alone (RankedHead::granted()). Tiles that are dense or without
/// candidates take no part. Over 8 prompts of the tiny model at 512 x 512, one budget for all tiles instead of one for
/// each raises PSNR from 36.9 to 38.2 dB at topk 0.15, and from 31.3 to 34.9 dB at 0.07.
/// If r more candidates may be kept, but more than r have the same value in RankedHead::rank, the tiles share the r
/// places evenly, so that none of them is preferred. Tile t of n keeps its first floor((t + 1) r / n) - floor(t r / n)
/// candidates of this value; a tile that has fewer of them leaves places empty. A NaN is ranked above all other values,
/// so that a broken block is computed and its NaN reaches the output.
/// part: which of the heads that share the budget are in `heads`; null if all are. The marks are the same as in one
/// call with all heads.
void spend_budget(std::span<RankedHead> heads, double topk, const HeadPart* part = nullptr);

/// Marks in RankedHead::kept the best candidate of each tile, and every other candidate whose predicted error is above
/// `bound` times the mean output length of the heads. This mean is taken over every kLengthTiles-th tile. For NaN and
/// `part` see spend_budget(). If no length is finite, all candidates are kept.
void keep_above_bound(std::span<RankedHead> heads, double bound, const HeadPart* part = nullptr);

}  // namespace sparsereel::attention::cpu
