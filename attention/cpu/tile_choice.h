// Chooses the blocks of each query tile without regard to other tiles, for selections that have no common budget.
#pragma once

#include "attention/cpu/ranked_head.h"

namespace sparsereel::attention::cpu {

/// Marks in head.kept the candidates that `policy` keeps; see predict_blocks(). Ties go to the lower index. A NaN
/// counts as above everything, so that a broken block is computed and seen.
void choose_in_tiles(const HeadPolicy& policy, RankedHead& head);

}  // namespace sparsereel::attention::cpu
