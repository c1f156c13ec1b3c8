// The config.json of CogVideoX's VAE. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// The config of diffusers' AutoencoderKLCogVideoX.
struct CogVideoXVaeConfig {
  int64_t in_channels = 3, out_channels = 3;
  std::vector<int64_t> block_out_channels = {128, 256, 256, 512};
  int64_t latent_channels = 16;
  int64_t layers_per_block = 3;
  int64_t norm_num_groups = 32;
  double norm_eps = 1e-6;  // for the norms in the encoder's blocks; all other norms ignore it
  double temporal_compression_ratio = 4;
  int64_t sample_height = 480;
  int64_t sample_width = 720;
  double scaling_factor = 1.15258426;
  bool invert_scale_latents = false;  // true: the encoder divides latents by scaling_factor, as decoding also does
  bool use_quant_conv = false, use_post_quant_conv = false;

  size_t time_halvings() const;
  int64_t frames_a_latent() const { return static_cast<int64_t>(temporal_compression_ratio); }
  int64_t pixels_a_latent() const { return int64_t{1} << (block_out_channels.size() - 1); }
};

/// Parses the config. Throws Error naming `file` and the field. With `with_encoder`, also throws for values that only
/// the encoder does not support.
CogVideoXVaeConfig parse_cogvideox_vae_config(const nlohmann::json& json, const std::string& file,
                                              bool with_encoder = false);

}  // namespace sparsereel::models
