// Compares the names of the two files that one publisher made for the two experts of a model. No torch.
#pragma once

#include <filesystem>
#include <string>

namespace sparsereel::models {

/// Returns "low" for "high", and "high" for "low".
std::string other_expert(const std::string& expert);

/// Returns the name in lower case, with one kind of separator, and without the word "high" or "low" for the expert. So
/// "video-14b_HIGH_fp8" and "video-14b-LOW_fp8" give the same result.
std::string name_without_expert(const std::filesystem::path& file);

}  // namespace sparsereel::models
