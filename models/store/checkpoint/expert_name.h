// Tells from a file's name for which of two experts it is. Publishers of models with two experts, and of LoRAs for
// them, say so only in the name. No torch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Returns "high" or "low" if the name says so: "high_noise", "HighNoise", "lora_HIGH_fp16", "style-low". Empty if the
/// name says neither or both. "low" in words such as "low-poly" describes pictures and does not count.
std::string expert_in_name(std::string_view name);

/// Returns expert_in_name() of the file's name, or else of the name of its folder.
std::string expert_of_file(const std::filesystem::path& file);

}  // namespace sparsereel::models
