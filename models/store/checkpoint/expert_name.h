// Tells from a file's name which of a model's two experts (transformers for high and for low noise) the file is for.
// Publishers of models with two experts, and of LoRAs for them, give this only in the name. No torch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Returns "high" or "low" if the name contains that word for an expert: "high_noise", "HighNoise", "lora_HIGH_fp16",
/// "style-low". Empty if it contains neither or both. "low" in words such as "low-poly" describes pictures, so it is
/// ignored.
std::string expert_in_name(std::string_view name);

/// Returns expert_in_name() of the file's name, or else of the name of its folder.
std::string expert_of_file(const std::filesystem::path& file);

}  // namespace sparsereel::models
