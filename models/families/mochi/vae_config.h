// The config.json of Mochi's VAE. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// The config of diffusers' AutoencoderKLMochi, without in_channels, encoder_block_out_channels and
/// add_attention_block, which only the encoder uses.
struct MochiVaeConfig {
  static constexpr int64_t kNormGroups = 32;  // fixed by the reference

  int64_t out_channels = 3;
  std::vector<int64_t> block_out_channels = {128, 256, 512, 768};  // of the decoder's levels, from pixels to latents
  int64_t latent_channels = 12;
  /// Number of residual blocks in each level, from pixels to latents; the last number is that of the blocks before the
  /// widest level.
  std::vector<int64_t> layers_per_block = {3, 3, 4, 6, 3};
  /// Factors by which the video grows from one level to the next: in the number of frames (temporal), and in height and
  /// width (spatial).
  std::vector<int64_t> temporal_expansions = {1, 2, 3}, spatial_expansions = {2, 2, 2};
  std::vector<double> latents_mean, latents_std;  // one number per channel; empty if the latents are not normalized
  double scaling_factor = 1;

  int64_t pixels_a_latent() const;
  int64_t frames_a_latent() const;
};

/// Parses the config. Throws Error naming `file` and the field.
MochiVaeConfig parse_mochi_vae_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
