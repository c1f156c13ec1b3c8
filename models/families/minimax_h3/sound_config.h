// The config.json of MiniMax-H3's autoencoder of sound. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// The fields of diffusers' AutoencoderKLMiniMaxH3Audio that the decoder needs.
struct MiniMaxH3SoundConfig {
  int64_t latent_dim = 2048;  // channels of the decoder's input
  int64_t latent_channels = 32;
  int64_t decoder_dim = 1024;  // channels before the first stage; each stage halves them
  std::vector<int64_t> decoder_rates = {5, 5, 2, 2, 2, 2, 2};  // factor by which each stage lengthens the sound
  std::vector<int64_t> decoder_kernel_sizes = {9, 9, 4, 4, 4, 4, 4};
  std::vector<int64_t> resblock_kernel_sizes = {3, 7, 11};
  std::vector<std::vector<int64_t>> resblock_dilation_sizes = {{1, 3, 5}, {1, 3, 5}, {1, 3, 5}};
  int64_t sampling_rate = 32000;
  std::vector<double> latents_mean, latents_std;  // one per channel

  int64_t samples_a_latent() const;
};

/// Parses the config. Throws Error naming `file` and the field.
MiniMaxH3SoundConfig parse_minimax_h3_sound_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
