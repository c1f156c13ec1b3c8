// The preprocessor_config.json of a vision model that reads pictures of any shape as patches. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

/// The config of transformers' Qwen2VLImageProcessor. The defaults are those of Qwen3-VL.
struct PatchConfig {
  int64_t patch_size = 16;          // length of a patch's edge in pixels
  int64_t merge_size = 2;           // a square of merge_size x merge_size patches becomes one token
  int64_t temporal_patch_size = 2;  // frames of a patch; a picture is repeated for all of them
  int64_t least_pixels = 65536, most_pixels = 16777216;  // bounds for a picture's pixels after resizing
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> image_mean = {0.5, 0.5, 0.5};  // red, green and blue
  std::array<double, 3> image_std = {0.5, 0.5, 0.5};
  std::string file = "preprocessor_config.json";  // the place of these values, for errors
};

/// Parses the config. A missing field takes the value of Qwen3-VL. Throws Error naming `file` and the field.
PatchConfig parse_patch_config(const nlohmann::json& json, const std::string& file);

/// The largest ratio of a picture's longer side to its shorter side. Pictures of a larger ratio cannot be cut into
/// patches (transformers' smart_resize()).
inline constexpr int64_t kMostPictureRatio = 200;

/// Returns true if a picture of this size in pixels is too narrow for patched_size().
bool is_too_narrow(int64_t height, int64_t width);

/// The size of a picture in pixels.
struct PatchSizes {
  int64_t height = 0, width = 0;
};

/// Returns the size to which a picture is resized. It consists of whole squares of patches, has nearly the picture's
/// shape, and keeps the number of pixels within the config's bounds. Throws Error for a picture that is_too_narrow().
PatchSizes patched_size(int64_t height, int64_t width, const PatchConfig& config);

/// Returns the number of tokens that a picture of this size in pixels becomes. Throws Error as patched_size() does.
int64_t picture_tokens(int64_t height, int64_t width, const PatchConfig& config);

}  // namespace sparsereel::models
