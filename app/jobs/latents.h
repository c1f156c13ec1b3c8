// Latents on disk: one safetensors file, key "latents", laid out and scaled as the family's are in diffusers.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

namespace sparsereel::app {

/// Why a file of latents is there.
enum class LatentsPurpose { asked_for, until_the_video_is_written };

/// latents: CPU, contiguous, fp32, fp16 or bf16. `recipe` goes into the file's metadata. Atomic. Throws Error naming
/// the file.
void save_latents(const std::filesystem::path& path, const at::Tensor& latents, const std::string& recipe,
                  LatentsPurpose purpose = LatentsPurpose::asked_for);

struct SavedLatents {
  at::Tensor latents;
  std::string recipe;  // empty where the file has none
};

/// The file is one that a run kept until its video was written, and holds just these latents.
bool are_kept_in(const std::filesystem::path& path, const at::Tensor& latents);

/// Throws Error naming the file when it is not well-formed, has no tensor `latents`, or one of another rank or dtype,
/// or with NaN or Inf in it.
SavedLatents load_latents(const std::filesystem::path& path);

}  // namespace sparsereel::app
