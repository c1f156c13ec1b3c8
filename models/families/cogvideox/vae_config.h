// config.json of CogVideoX's VAE. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// diffusers' AutoencoderKLCogVideoX (decoder part). Not read, as they change nothing there: norm_eps, which the
/// decoder's norms ignore, and invert_scale_latents, which concerns encoding an image.
struct CogVideoXVaeConfig {
  int64_t out_channels = 3;
  std::vector<int64_t> block_out_channels = {128, 256, 256, 512};
  int64_t latent_channels = 16;
  int64_t layers_per_block = 3;
  int64_t norm_num_groups = 32;
  double temporal_compression_ratio = 4;
  int64_t sample_height = 480;
  int64_t sample_width = 720;
  double scaling_factor = 1.15258426;
  bool use_post_quant_conv = false;

  int64_t pixels_a_latent() const { return int64_t{1} << (block_out_channels.size() - 1); }
};

/// As the parsers of text/encoder/t5_config.h.
CogVideoXVaeConfig parse_cogvideox_vae_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
