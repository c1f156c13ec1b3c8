// Cuts latents into patches, one for each video token, and joins patches to latents.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/transformer/token_plan.h"

namespace sparsereel::models {

/// The size of a patch in latent frames and latent pixels.
struct PatchSize {
  int64_t frames = 1, height = 2, width = 2;
};

/// Cuts latents [B, F, C, H, W] of the plan's grid into patches. Returns the plan's slice of the tokens, in the plan's
/// order: [B, slice, C * patch]. In the last dimension the channel is the slowest index.
at::Tensor patchify(const at::Tensor& latents, const PatchSize& patch, const TokenPlan& plan);

/// Does the inverse of patchify(), for any number of channels. All ranks of the plan's group must call it, each with
/// its own slice; each gets all latents.
at::Tensor unpatchify(const at::Tensor& patches, const PatchSize& patch, const TokenPlan& plan);

/// Joins patches [B, slice, patch * all], in which the channel is the fastest index of the last dimension and `all` is
/// the number of channels. Returns the first `channels` channels, [B, channels, F, H, W], contiguous.
at::Tensor unpatchify_channels_last(const at::Tensor& patches, int64_t all, int64_t channels, const PatchSize& patch,
                                    const TokenPlan& plan);

/// Returns int64 [slice], in the plan's order: 1 for tokens with at least one known latent (one where `mask` is 0), and
/// 0 for the others. `mask` is Conditioning::mask [1, F, 1, H, W]. Each of its axes has length 1 or the length of the
/// latents.
at::Tensor known_tokens(const at::Tensor& mask, const PatchSize& patch, const TokenPlan& plan);

}  // namespace sparsereel::models
