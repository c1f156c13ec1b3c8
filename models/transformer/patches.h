// Cuts latents into patches, one for each video token, and joins them again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/transformer/token_plan.h"

namespace sparsereel::models {

/// Sizes in latent frames and latent pixels.
struct PatchSize {
  int64_t frames = 1, height = 2, width = 2;
};

/// Cuts latents [B, F, C, H, W] of the plan's grid into [B, slice, C x patch], channel slowest: the plan's slice of the
/// tokens in its order.
at::Tensor patchify(const at::Tensor& latents, const PatchSize& patch, const TokenPlan& plan);

/// Joins patches of any number of channels to latents, the inverse of patchify(). All ranks of the plan's group
/// contribute their slices.
at::Tensor unpatchify(const at::Tensor& patches, const PatchSize& patch, const TokenPlan& plan);

/// Joins patches [B, slice, patch x all channels], channel fastest. Returns the first `channels` of the `all` channels,
/// [B, channels, F, H, W], contiguous.
at::Tensor unpatchify_channels_last(const at::Tensor& patches, int64_t all, int64_t channels, const PatchSize& patch,
                                    const TokenPlan& plan);

/// Returns int64 [slice], in the plan's order: 1 for tokens whose latents are known at least in part, else 0. `mask` is
/// Conditioning::mask, with axes [1, F, 1, H, W] of length 1 or the length of the latents.
at::Tensor known_tokens(const at::Tensor& mask, const PatchSize& patch, const TokenPlan& plan);

}  // namespace sparsereel::models
