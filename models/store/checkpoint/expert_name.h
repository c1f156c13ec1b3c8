// Which of two experts a file is for, by its name: publishers of two transformers, and of LoRAs for them, write it only
// there. No torch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// "high" or "low" where the name says so: "high_noise", "HighNoise", "lora_HIGH_fp16", "style-low". Empty where it
/// says neither, or both. "low-poly" and the like are about pictures.
std::string expert_in_name(std::string_view name);

/// The same of a file: what its own name says, or else that of the folder it is in.
std::string expert_of_file(const std::filesystem::path& file);

}  // namespace sparsereel::models
