// Latents on disk: a safetensors file with the key "latents", in the layout and scale that diffusers uses for the
// family. The latents of a sound are under the key "sound", as models::Latents has them.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "models/request/latents.h"

namespace sparsereel::app {

/// The reason for writing a file of latents.
enum class LatentsPurpose { asked_for, until_the_video_is_written };

/// Saves the latents of a video (CPU, contiguous, fp32, fp16 or bf16), and of its sound if there is one. `recipe` goes
/// into the file's metadata. The write is atomic. Throws Error naming the file.
void save_latents(const std::filesystem::path& path, const models::Latents& latents, const std::string& recipe,
                  LatentsPurpose purpose = LatentsPurpose::asked_for);

struct SavedLatents {
  models::Latents latents;
  std::string recipe;  // empty if the file has none
};

/// Returns true if a run wrote the file to keep its latents until the video is written, and the file holds exactly
/// these latents.
bool are_kept_in(const std::filesystem::path& path, const models::Latents& latents);

/// Loads the latents. Throws Error naming the file if it is damaged or has no tensor `latents`. Also throws if a tensor
/// has the wrong rank or dtype, or holds NaN or Inf.
SavedLatents load_latents(const std::filesystem::path& path);

}  // namespace sparsereel::app
