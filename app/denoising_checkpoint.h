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

/// The state where the file exists and belongs to this recipe, else null. `other` says that it belongs to another, or
/// is none; empty where nothing is wrong.
std::shared_ptr<const models::DenoisingState> load_checkpoint(const std::filesystem::path& path,
                                                              const std::string& identity, std::string& other);

}  // namespace sparsereel::app
