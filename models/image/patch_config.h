// The preprocessor_config.json of a vision model that reads pictures of any shape as patches. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

/// The config, transformers' Qwen2VLImageProcessor. The fallbacks are those of Qwen3-VL.
struct PatchConfig {
  int64_t patch_size = 16;                               // pixels of a patch's edge
  int64_t merge_size = 2;                                // patches of the edge of a square that becomes one token
  int64_t temporal_patch_size = 2;                       // frames of a patch, which a picture fills with copies
  int64_t least_pixels = 65536, most_pixels = 16777216;  // of a picture after resizing
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> image_mean = {0.5, 0.5, 0.5};  // red, green and blue
  std::array<double, 3> image_std = {0.5, 0.5, 0.5};
};

/// Parses the config. A missing field takes the value of Qwen3-VL. Throws Error naming `file` and the field.
PatchConfig parse_patch_config(const nlohmann::json& json, const std::string& file);

/// The size of a picture in pixels.
struct PatchSizes {
  int64_t height = 0, width = 0;
};

/// Returns the size to which a picture is resized: whole squares of patches, the picture's shape as far as possible,
/// and a number of pixels within the config's bounds. Throws Error for a picture of more than 200 to 1.
PatchSizes patched_size(int64_t height, int64_t width, const PatchConfig& config);

}  // namespace sparsereel::models
