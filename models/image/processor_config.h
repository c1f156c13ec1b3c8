// The preprocessor_config.json of an image encoder. It says how a picture is converted to the encoder's input. No
// torch.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

/// The config of transformers' CLIPImageProcessor, which must have bicubic resampling and a center crop.
struct ImageProcessorConfig {
  int64_t crop_size = 224;  // length of the shorter edge after resizing, and of both edges after cropping
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> image_mean = {0.48145466, 0.4578275, 0.40821073};  // red, green and blue
  std::array<double, 3> image_std = {0.26862954, 0.26130258, 0.27577711};
};

/// Parses the config. A missing field takes transformers' default. Throws Error naming `file` and the field.
ImageProcessorConfig parse_image_processor_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
