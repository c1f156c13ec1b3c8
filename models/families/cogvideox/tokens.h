// CogVideoX's tables of token positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hilbert/token_order.h"
#include "models/families/cogvideox/config.h"
#include "models/transformer/token_plan.h"

namespace sparsereel::models {

/// learned_positions as in CogVideoXEnds. Throws Error naming config_file for sizes that the reference also refuses:
/// not the sample's with learned positions, or beyond it in CogVideoX 1.5.
TokenTables cogvideox_tables(const CogVideoXConfig& config, const std::string& config_file,
                             const at::Tensor& learned_positions, const hilbert::Grid& grid);

}  // namespace sparsereel::models
