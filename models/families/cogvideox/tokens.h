// CogVideoX's tables of token positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hilbert/token_order.h"
#include "models/families/cogvideox/config.h"
#include "models/transformer/token_plan.h"

namespace sparsereel::models {

/// Returns the positions of a video's tokens. `learned_positions` is as in CogVideoXEnds. Throws Error naming
/// config_file for sizes that the reference also refuses. With learned positions, these are videos whose height or
/// width is not that of the training videos; in CogVideoX 1.5, videos that are higher or wider than the training
/// videos.
TokenTables cogvideox_tables(const CogVideoXConfig& config, const std::string& config_file,
                             const at::Tensor& learned_positions, const hilbert::Grid& grid);

}  // namespace sparsereel::models
