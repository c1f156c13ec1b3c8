// From latents to CogVideoX's video tokens and back: patches, token order, position tables.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hilbert/token_order.h"
#include "models/checkpoint/configs.h"
#include "models/layers/positions.h"

namespace sparsereel::models {

/// latents [B, F, C, H, W] -> patches [B, N video, C x patch_size_t x patch_size^2] in native token order, channel
/// slowest.
at::Tensor patchify(const at::Tensor& latents, const CogVideoXConfig& config);

/// The inverse: patches of out_channels -> [B, F, out_channels, H, W] of the latents' F, H and W.
at::Tensor unpatchify(const at::Tensor& patches, const CogVideoXConfig& config, at::IntArrayRef latent_sizes);

/// What depends only on the grid and the token order. Tables are on the device, video tokens in the run's order.
struct TokenPlan {
  at::Tensor order, inverse;   // int64 [N video]; undefined for the native order
  at::Tensor video_positions;  // [N video, C] in the model's dtype, added to the tokens; undefined: none
  at::Tensor text_positions;   // [L, C], likewise
  RotaryTable rotary;          // undefined: none
  at::Tensor rotary_pairs;     // attention::rotary_pairs() of them on a GPU
};

/// learned_positions as in CogVideoXWeights. Throws Error naming config_file where the reference refuses the size too:
/// learned positions off the sample size, or a grid beyond the sample size in CogVideoX 1.5.
TokenPlan make_token_plan(const CogVideoXConfig& config, const std::string& config_file,
                          const at::Tensor& learned_positions, const hilbert::Grid& grid, hilbert::TokenOrder order,
                          at::TensorOptions options);

}  // namespace sparsereel::models
