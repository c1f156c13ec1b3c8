// The config.json of Wan's VAE. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// The config of diffusers' AutoencoderKLWan. dropout is not read; attn_scales is read only with the encoder.
struct WanVaeConfig {
  int64_t base_dim = 96;  // width of the encoder's first level
  int64_t decoder_base_dim = 96;
  int64_t z_dim = 16;
  std::vector<int64_t> dim_mult = {1, 2, 4, 4};
  int64_t num_res_blocks = 2;
  /// For each level but the last, from pixels to latents: true if the encoder halves the number of frames after it.
  std::vector<bool> temperal_downsample = {false, true, true};
  std::vector<double> latents_mean, latents_std;  // one per channel of z_dim
  bool is_residual = false;
  int64_t in_channels = 3, out_channels = 3;  // colors x patch_size^2
  int64_t patch_size = 1;

  int64_t pixels_a_latent() const { return patch_size << (dim_mult.size() - 1); }
  int64_t frames_a_latent() const;
};

/// One level of the encoder or decoder. The encoder's levels go from pixels to latents, the decoder's levels from
/// latents to pixels. All but the last level halve or double the picture.
struct WanVaeLevel {
  int64_t in = 0;       // input channels
  int64_t out = 0;      // channels of the level's residual blocks
  int64_t resized = 0;  // channels after halving or doubling the picture; 0 if the level keeps the picture's size
  bool resizes_time = false;
};

std::vector<WanVaeLevel> encoder_levels(const WanVaeConfig& config);
std::vector<WanVaeLevel> decoder_levels(const WanVaeConfig& config);

/// Parses the config. Throws Error naming `file` and the field. With `with_encoder`, also throws for values that only
/// the encoder does not support.
WanVaeConfig parse_wan_vae_config(const nlohmann::json& json, const std::string& file, bool with_encoder = false);

}  // namespace sparsereel::models
