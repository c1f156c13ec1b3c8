// Latents on disk: one safetensors file, key "latents", diffusers' layout [1, F, C, H, W] and scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

namespace sparsereel::app {

/// latents: CPU, contiguous, fp32, fp16 or bf16. `recipe` goes into the file's metadata. Atomic. Throws Error naming
/// the file.
void save_latents(const std::filesystem::path& path, const at::Tensor& latents, const std::string& recipe);

struct SavedLatents {
  at::Tensor latents;
  std::string recipe;  // empty where the file has none
};

/// Throws Error naming the file when it is not well-formed, has no tensor `latents`, or one of another rank or dtype,
/// or with NaN or Inf in it.
SavedLatents load_latents(const std::filesystem::path& path);

}  // namespace sparsereel::app
