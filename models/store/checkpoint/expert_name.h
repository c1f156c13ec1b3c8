// Tells from a file's name which of two experts it is for. Publishers of such models and their LoRAs say so only there.
// No torch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Returns "high" or "low" if the name says so: "high_noise", "HighNoise", "lora_HIGH_fp16", "style-low". Empty if it
/// says neither or both. Words such as "low-poly" describe pictures and do not count.
std::string expert_in_name(std::string_view name);

/// Returns expert_in_name() of the file's name, or else of the name of its folder.
std::string expert_of_file(const std::filesystem::path& file);

}  // namespace sparsereel::models
