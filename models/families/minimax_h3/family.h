// MiniMax-H3's entry in the table of families. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family minimax_h3_family();

}  // namespace sparsereel::models
