// The config.json of MiniMax-H3's transformer. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

/// The config of diffusers' MiniMaxH3Transformer3DModel.
struct MiniMaxH3Config {
  static constexpr int64_t kSoundChannels = 2;  // left and right
  /// The timestep of keyframes, unless the video's timestep is already higher. Keyframes at this timestep have almost
  /// no noise.
  static constexpr double kKeyframeTime = 0.999;

  int64_t num_attention_heads = 56;
  int64_t attention_head_dim = 128;
  int64_t hidden_size = 5376;
  int64_t num_layers = 50;
  int64_t num_refiner_layers = 2;
  int64_t ffn_dim = 14336;
  int64_t in_channels = 24;
  int64_t audio_in_channels = 32;
  std::array<int64_t, 3> patch_size = {1, 2, 2};  // t, h, w
  int64_t text_dim = 5120;
  int64_t freq_dim = 256;
  int64_t time_embed_hidden_dim = 5376;
  int64_t time_embed_dim = 2688;
  int64_t rope_freq_dim = 16;  // frequencies of each axis; 6 x rope_freq_dim channels of a head are rotated
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  double qk_norm_eps = 1e-5;
  double final_norm_eps = 1e-5;

  /// Returns the number of channels of all heads, which differs from hidden_size.
  int64_t heads_width() const { return num_attention_heads * attention_head_dim; }
  int64_t patch_elements() const { return in_channels * patch_size[0] * patch_size[1] * patch_size[2]; }
};

/// Parses the config. Throws Error naming `file` and the field.
MiniMaxH3Config parse_minimax_h3_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
