// What a request for a CogVideoX video resolves to, and what is impossible.
#pragma once

#include <cstdint>
#include <vector>

#include "models/checkpoint/configs.h"
#include "models/pipeline.h"

namespace sparsereel::models {

/// Fills in the checkpoint's defaults. Throws as Pipeline::resolve().
GenerateSettings resolve_request(const GenerateRequest& request, const CogVideoXConfig& transformer,
                                 const CogVideoXVaeConfig& vae, const SchedulerConfig& scheduler);

/// [1, F, C, H, W]: 1.5 denoises whole groups of patch_size_t latent frames; the surplus stands first and is dropped
/// before decoding.
std::vector<int64_t> latents_shape(const GenerateSettings& settings, const CogVideoXConfig& transformer);

}  // namespace sparsereel::models
