// Which LoRAs a run adds to the weights, and how strongly. No torch.
#pragma once

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace sparsereel::models {

struct LoraChoice {
  std::filesystem::path file;
  std::string expert = {};  // ExpertSpec::name of the transformer that it is for; empty: all that there are
  double scale = 1;         // 0: it changes nothing
};

/// Layers are added in fp32: a larger factor has no place there.
inline bool fits_float(double factor) {
  return std::abs(factor) <= static_cast<double>(std::numeric_limits<float>::max());  // false for NaN
}

/// "style.safetensors:0.8,fast.safetensors@high": FILE, FILE:SCALE, FILE@EXPERT or FILE@EXPERT:SCALE, with commas
/// between. A file that is there may have these marks and commas in its name: the longest text that names one is it.
/// Throws Error for a scale that is no finite number, or more than a float holds.
std::vector<LoraChoice> parse_loras(const std::string& text);
/// The same as text, whole paths or file names alone.
std::string text_of(const std::vector<LoraChoice>& loras, bool whole_paths);

}  // namespace sparsereel::models
