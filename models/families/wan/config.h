// The config.json of Wan's transformer (diffusers' WanTransformer3DModel).
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace sparsereel::models {

struct WanConfig {
  std::array<int64_t, 3> patch_size = {1, 2, 2};  // t, h, w
  int64_t num_attention_heads = 40;
  int64_t attention_head_dim = 128;
  int64_t in_channels = 16;
  int64_t out_channels = 16;
  int64_t text_dim = 4096;
  int64_t freq_dim = 256;
  int64_t ffn_dim = 13824;
  int64_t num_layers = 40;
  bool cross_attn_norm = true;
  double eps = 1e-6;
  int64_t rope_max_seq_len = 1024;  // largest number of patches on each axis of the grid
  // The next two fields are for models that attend to the tokens of an image encoder.
  std::optional<int64_t> image_dim{};  // channels of the image tokens; unset if the model does not attend to images
  /// If the image tokens have learned positions: the number of tokens of two images.
  std::optional<int64_t> pos_embed_seq_len{};

  bool attends_to_images() const { return image_dim.has_value(); }
  int64_t width() const { return num_attention_heads * attention_head_dim; }
};

/// Parses the config. Throws Error naming `file` and the field.
WanConfig parse_wan_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
