// A denoising that was cut short, on disk: latents, step, the sampler's history and the generator's state, as one
// safetensors file.
#pragma once

#include <filesystem>
#include <functional>
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

/// Has a run save its state to `path` after every `every` steps, and after the last. A checkpoint that cannot be
/// written only costs time, and only where the run is cut short: `warn` hears of the first one. `saved`: may be empty.
void keep_checkpoints(models::GenerateObserver& observer, const std::filesystem::path& path,
                      const std::string& identity, int64_t every,
                      const std::function<void(const models::DenoisingState&)>& saved,
                      const std::function<void(const std::string&)>& warn);

/// The state where the file exists and belongs to this recipe, else null. `other` says that it belongs to another, or
/// is none; empty where nothing is wrong.
std::shared_ptr<const models::DenoisingState> load_checkpoint(const std::filesystem::path& path,
                                                              const std::string& identity, std::string& other);

}  // namespace sparsereel::app
