// Latents cut into patches, one a video token, and put together again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/transformer/token_plan.h"

namespace sparsereel::models {

/// In latent frames and pixels.
struct PatchSize {
  int64_t frames = 1, height = 2, width = 2;
};

/// latents [B, F, C, H, W] of the plan's grid -> [B, slice, C x patch], channel slowest, the plan's slice of the tokens
/// in its order.
at::Tensor patchify(const at::Tensor& latents, const PatchSize& patch, const TokenPlan& plan);

/// The inverse, for patches of any number of channels: of all tokens, whose slices all ranks of the plan's group bring.
at::Tensor unpatchify(const at::Tensor& patches, const PatchSize& patch, const TokenPlan& plan);

/// The same for patches [B, slice, patch x all channels], channel fastest: [B, channels, F, H, W], contiguous, of the
/// first `channels` of `all`.
at::Tensor unpatchify_channels_last(const at::Tensor& patches, int64_t all, int64_t channels, const PatchSize& patch,
                                    const TokenPlan& plan);

/// int64 [slice], in the plan's order: 1 for tokens whose latents are known, even some of them, else 0. mask: of a
/// Conditioning with axes [1, F, 1, H, W], where those are 1 or the latents'.
at::Tensor known_tokens(const at::Tensor& mask, const PatchSize& patch, const TokenPlan& plan);

}  // namespace sparsereel::models
