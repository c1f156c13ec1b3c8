// config.json of Wan's VAE. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// diffusers' AutoencoderKLWan (decoder part). Not read, as they concern the encoder alone: base_dim where
/// decoder_base_dim stands beside it, in_channels, attn_scales; nor dropout.
struct WanVaeConfig {
  int64_t decoder_base_dim = 96;
  int64_t z_dim = 16;
  std::vector<int64_t> dim_mult = {1, 2, 4, 4};
  int64_t num_res_blocks = 2;
  std::vector<bool> temperal_downsample = {false, true, true};  // from pixels to latents
  std::vector<double> latents_mean, latents_std;                // of each of z_dim channels
  bool is_residual = false;
  int64_t out_channels = 3;  // colours x patch_size^2
  int64_t patch_size = 1;

  int64_t pixels_a_latent() const { return patch_size << (dim_mult.size() - 1); }
  int64_t frames_a_latent() const;
};

/// One level of the decoder, from latents to pixels. All but the last one double the picture.
struct WanVaeLevel {
  int64_t in = 0;        // channels
  int64_t out = 0;       // of its residual blocks
  int64_t enlarged = 0;  // after doubling; 0: does not double
  bool doubles_time = false;
};

std::vector<WanVaeLevel> levels_of(const WanVaeConfig& config);

/// As the parsers of text/encoder/t5_config.h.
WanVaeConfig parse_wan_vae_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
