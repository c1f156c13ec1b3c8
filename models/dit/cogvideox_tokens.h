// From latents to CogVideoX's video tokens and back, and the tables of their positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hilbert/token_order.h"
#include "models/dit/cogvideox_config.h"
#include "models/dit/token_plan.h"

namespace sparsereel::models {

/// latents [B, F, C, H, W] -> patches [B, N video, C x patch_size_t x patch_size^2] in native token order, channel
/// slowest.
at::Tensor patchify(const at::Tensor& latents, const CogVideoXConfig& config);

/// The inverse: patches of out_channels -> [B, F, out_channels, H, W] of the latents' F, H and W.
at::Tensor unpatchify(const at::Tensor& patches, const CogVideoXConfig& config, at::IntArrayRef latent_sizes);

/// learned_positions as in CogVideoXEnds. Throws Error naming config_file where the reference refuses the size too:
/// learned positions off the sample size, or a grid beyond the sample size in CogVideoX 1.5.
TokenTables cogvideox_tables(const CogVideoXConfig& config, const std::string& config_file,
                             const at::Tensor& learned_positions, const hilbert::Grid& grid);

}  // namespace sparsereel::models
