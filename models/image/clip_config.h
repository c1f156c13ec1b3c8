// The config.json of CLIP's vision transformer as a struct, with transformers' field names. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

/// The config of transformers' CLIPVisionModel. hidden_act must be "gelu" (computed with the error function).
struct ClipVisionConfig {
  int64_t hidden_size = 1280;
  int64_t intermediate_size = 5120;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 16;
  int64_t num_channels = 3;
  int64_t image_size = 224;
  int64_t patch_size = 14;
  double layer_norm_eps = 1e-5;

  int64_t patches_a_side() const { return image_size / patch_size; }
  int64_t tokens() const { return patches_a_side() * patches_a_side() + 1; }
};

/// Parses the config. A missing field takes the default of transformers' class, which may differ from the value above.
/// Throws Error naming `file` and the field.
ClipVisionConfig parse_clip_vision_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
