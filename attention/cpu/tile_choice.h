// Chooses the blocks of each query tile alone, for selections in which tiles do not share a budget.
#pragma once

#include "attention/cpu/ranked_head.h"

namespace sparsereel::attention::cpu {

/// Marks in head.kept the candidates that `policy` keeps; see predict_blocks(). If candidates are equal, those with
/// lower block indices are kept first. A NaN is ranked above all other values, so that a broken block is computed and
/// its NaN reaches the output.
void choose_in_tiles(const HeadPolicy& policy, RankedHead& head);

}  // namespace sparsereel::attention::cpu
