// A denoising that was cut short, on disk: latents, step, the sampler's history and the generator's state, as one
// safetensors file.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/jobs/outputs.h"
#include "models/engine/denoising.h"
#include "models/request/denoising_state.h"

namespace sparsereel::app {

/// `identity`: of the recipe that the state belongs to. Atomic: an older checkpoint stays until the new one is whole.
/// Throws Error naming the file.
void save_checkpoint(const std::filesystem::path& path, const models::DenoisingState& state,
                     const std::string& identity);

/// The checkpoint of a run: "clip.mp4" -> "clip.mp4.checkpoint.safetensors", or "clip.mp4.checkpoint-2.safetensors" and
/// so on: the file that this run goes on from, else the first name that is free. No other file is replaced.
struct OwnCheckpoint {
  std::filesystem::path path;
  std::shared_ptr<const models::DenoisingState> state;  // null where the path is free
  std::vector<std::string> passed_over;                 // "FILE is not used: why": it is no checkpoint, or of another
                                                        // recipe, or damaged
};

/// `cache`: what the state must have all for.
OwnCheckpoint find_checkpoint(const std::filesystem::path& output, const std::string& identity,
                              const models::CacheRule& cache);

/// Whether there are files of such names, whatever they hold.
bool may_have_checkpoint(const std::filesystem::path& output);

/// That file's state. Throws Error with what is wrong with the file.
std::shared_ptr<const models::DenoisingState> load_checkpoint(const std::filesystem::path& path,
                                                              const std::string& identity,
                                                              const models::CacheRule& cache);

/// The denoising checkpoints in the folder, of whatever recipe.
std::vector<FileBeside> checkpoints_in(const std::filesystem::path& folder);

/// Recipes by the output that they make.
using Identities = std::map<std::filesystem::path, std::string>;

/// The videos of these recipes are there: removes their checkpoints, damaged ones too, and nothing else.
void remove_checkpoints(const Identities& made);

}  // namespace sparsereel::app
