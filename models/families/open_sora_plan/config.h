// The config.json of Open-Sora-Plan's transformer. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

/// The config of OpenSoraT2V in version 1.2.0 of PKU-YuanGroup/Open-Sora-Plan. This transformer has full attention over
/// frames, rows and columns with rotary positions, and cross-attention to the text.
struct OpenSoraPlanConfig {
  static constexpr int64_t kTimeChannels = 256;  // channels of the timestep's sinusoids, fixed by the reference

  int64_t num_attention_heads = 16;
  int64_t attention_head_dim = 88;
  int64_t in_channels = 0;
  int64_t out_channels = 0;  // in_channels, or twice as many; then the second half is not used
  int64_t num_layers = 1;
  int64_t patch_size = 0;  // height and width of a patch, in latents
  int64_t caption_channels = 0;
  double norm_eps = 1e-5;
  int64_t sample_frames = 1, sample_height = 1, sample_width = 1;  // size of the training latents
  // A token's position on each axis is divided by the axis's scale.
  double interpolation_scale_t = 1, interpolation_scale_h = 1, interpolation_scale_w = 1;

  int64_t width() const { return num_attention_heads * attention_head_dim; }
};

/// Parses the config. Throws Error naming `file` and the field.
OpenSoraPlanConfig parse_open_sora_plan_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
