// The LoRAs that a run adds to the weights, and their factors. No torch.
#pragma once

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace sparsereel::models {

struct LoraChoice {
  std::filesystem::path file;
  std::string expert = {};  // ExpertSpec::name of the transformer that the LoRA changes; empty for all
  double scale = 1;         // 0 changes nothing
};

/// Returns true if the factor is in the range of fp32, in which LoRAs are added.
inline bool fits_float(double factor) {
  return std::abs(factor) <= static_cast<double>(std::numeric_limits<float>::max());  // false for NaN
}

/// Reads "style.safetensors:0.8,fast.safetensors@high": FILE, FILE:SCALE, FILE@EXPERT or FILE@EXPERT:SCALE, separated
/// by commas. The name of an existing file may contain ':', '@' and ','; the longest text that names a file wins. A
/// folder stands for the .safetensors files in it, in the order of their names: one LoRA, or one for each of two
/// experts. Throws Error for a scale that fits_float() rejects, and for a folder that holds no .safetensors file or
/// more than two.
std::vector<LoraChoice> parse_loras(const std::string& text);
/// Writes the choices in the form that parse_loras() reads, with whole paths or with file names only.
std::string text_of(const std::vector<LoraChoice>& loras, bool whole_paths);

}  // namespace sparsereel::models
