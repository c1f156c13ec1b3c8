// CogVideoX's tables of token positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hilbert/token_order.h"
#include "models/families/cogvideox/config.h"
#include "models/transformer/token_plan.h"

namespace sparsereel::models {

/// Returns the positions of a video's tokens. `learned_positions` is as in CogVideoXEnds. Throws Error naming
/// config_file for sizes that the reference also refuses. If positions are learned, these are all sizes other than the
/// training size; in CogVideoX 1.5, these are sizes above the training size.
TokenTables cogvideox_tables(const CogVideoXConfig& config, const std::string& config_file,
                             const at::Tensor& learned_positions, const hilbert::Grid& grid);

}  // namespace sparsereel::models
