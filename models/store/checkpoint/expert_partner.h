// Names of two files that one publisher made for the two experts of a model. No torch.
#pragma once

#include <filesystem>
#include <string>

namespace sparsereel::models {

/// The other one of "high" and "low".
std::string other_expert(const std::string& expert);

/// The name without the word for its expert, in small letters and with one kind of separator: "video-14b_HIGH_fp8" and
/// "video-14b-LOW_fp8" have the same one.
std::string name_without_expert(const std::filesystem::path& file);

}  // namespace sparsereel::models
