// The config.json of Wan's VAE. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// diffusers' AutoencoderKLWan. dropout is not read, nor is attn_scales without the encoder.
struct WanVaeConfig {
  int64_t base_dim = 96;  // of the encoder
  int64_t decoder_base_dim = 96;
  int64_t z_dim = 16;
  std::vector<int64_t> dim_mult = {1, 2, 4, 4};
  int64_t num_res_blocks = 2;
  std::vector<bool> temperal_downsample = {false, true, true};  // from pixels to latents
  std::vector<double> latents_mean, latents_std;                // one per channel of z_dim
  bool is_residual = false;
  int64_t in_channels = 3, out_channels = 3;  // colors x patch_size^2
  int64_t patch_size = 1;

  int64_t pixels_a_latent() const { return patch_size << (dim_mult.size() - 1); }
  int64_t frames_a_latent() const;
};

/// One level of the encoder, from pixels to latents, or of the decoder, in the other direction. All but the last one
/// halve or double the picture.
struct WanVaeLevel {
  int64_t in = 0;       // channels
  int64_t out = 0;      // of its residual blocks
  int64_t resized = 0;  // channels after halving or doubling the picture; 0 if it keeps its size
  bool resizes_time = false;
};

std::vector<WanVaeLevel> encoder_levels(const WanVaeConfig& config);
std::vector<WanVaeLevel> decoder_levels(const WanVaeConfig& config);

/// Throws Error as in text/encoder/t5_config.h. with_encoder also refuses what only the encoder does not
/// support.
WanVaeConfig parse_wan_vae_config(const nlohmann::json& json, const std::string& file, bool with_encoder = false);

}  // namespace sparsereel::models
