// Denoising checkpoints on disk. A safetensors file holds the latents, the step, the sampler's history and the state of
// the generator.
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

/// Saves the state to `path`, together with the `identity` of the recipe that it belongs to. The write is atomic: an
/// older checkpoint stays until the new one is complete. Throws Error naming the file.
void save_checkpoint(const std::filesystem::path& path, const models::DenoisingState& state,
                     const std::string& identity);

/// The checkpoint of a run: the file that the run resumes from, or else the first free name. For "clip.mp4" the names
/// are "clip.mp4.checkpoint.safetensors", "clip.mp4.checkpoint-2.safetensors" and so on. No other file is replaced.
struct OwnCheckpoint {
  std::filesystem::path path;
  std::shared_ptr<const models::DenoisingState> state;  // null if `path` is free
  /// "FILE is not used: why", because it is not a checkpoint, is damaged, or has another recipe.
  std::vector<std::string> passed_over;
};

/// Finds the checkpoint that has this identity and holds everything that `cache` needs.
OwnCheckpoint find_checkpoint(const std::filesystem::path& output, const std::string& identity,
                              const models::CacheRule& cache);

/// Returns true if a file with the name of a checkpoint of this output exists, whatever it holds.
bool may_have_checkpoint(const std::filesystem::path& output);

/// Returns the state in the file. Throws Error saying what is wrong with the file.
std::shared_ptr<const models::DenoisingState> load_checkpoint(const std::filesystem::path& path,
                                                              const std::string& identity,
                                                              const models::CacheRule& cache);

/// Returns the denoising checkpoints in the folder, of any recipe.
std::vector<FileBeside> checkpoints_in(const std::filesystem::path& folder);

/// Identities of recipes, by the video file that each makes.
using Identities = std::map<std::filesystem::path, std::string>;

/// Removes the checkpoints whose output and identity are those of these finished videos, even damaged ones, and no
/// other file.
void remove_checkpoints(const Identities& made);

}  // namespace sparsereel::app
