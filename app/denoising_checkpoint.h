// A denoising that was cut short, on disk: latents, step, the sampler's history and the generator's state, as one
// safetensors file.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "models/denoising.h"

namespace sparsereel::app {

/// "clip.mp4" -> "clip.mp4.checkpoint.safetensors"
std::filesystem::path checkpoint_beside(const std::filesystem::path& output);

/// `identity`: of the recipe that the state belongs to. Atomic: an older checkpoint stays until the new one is whole.
/// Throws Error naming the file.
void save_checkpoint(const std::filesystem::path& path, const models::DenoisingState& state,
                     const std::string& identity);

/// The state where the file exists, belongs to this recipe and has all that a cache by this rule goes on from, else
/// null. `other` says why it is not used; empty where nothing is wrong.
std::shared_ptr<const models::DenoisingState> load_checkpoint(const std::filesystem::path& path,
                                                              const std::string& identity,
                                                              const models::CacheRule& cache, std::string& other);

}  // namespace sparsereel::app
