// The config.json of MiniMax-H3's video VAE. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// The config of diffusers' AutoencoderKLMiniMaxH3.
struct MiniMaxH3VaeConfig {
  int64_t latent_channels = 24;
  std::vector<int64_t> block_out_channels = {128, 256, 256, 512, 512, 1024};  // channels of the encoder's levels
  int64_t layers_per_block = 2;
  std::vector<int64_t> spatial_downsample_factors = {2, 2, 2, 2, 1, 1};  // per level
  std::vector<int64_t> temporal_downsample_factors = {1, 2, 2, 1, 1, 1};
  int64_t norm_num_groups = 32;
  double norm_eps = 1e-6;
  int64_t decoder_num_layers = 36;
  int64_t decoder_num_attention_heads = 32;
  int64_t decoder_attention_head_dim = 64;
  int64_t decoder_num_register_tokens = 4;
  int64_t decoder_ffn_mult = 4;
  double decoder_rope_theta = 100;
  double decoder_rope_dim_ratio = 0.75;
  double decoder_norm_eps = 1e-5;
  int64_t clip_length = 17;                       // frames that are encoded together
  int64_t token_drop = 3;                         // number of latent frames that are dropped after the last clip
  std::vector<double> latents_mean, latents_std;  // one per channel
  /// Comes from the weights, not from the config. true: a block's queries, keys and values are one layer, head by head,
  /// as in the authors' files.
  bool has_fused_heads = false;

  int64_t pixels_a_latent() const;
  int64_t frames_a_latent() const;
  int64_t decoder_width() const { return decoder_num_attention_heads * decoder_attention_head_dim; }
  /// Returns the channels of a head that rotary embeddings rotate, a multiple of 6.
  int64_t rotated_channels() const;

  // A video of n clips has n x latents_a_clip() + overlapping_latents() latent frames. The decoder decodes a clip's
  // latent frames together with the first overlapping_latents() latent frames of the next clip, so it decodes these
  // latent frames twice.
  int64_t latents_a_clip() const { return (clip_length + frames_a_latent() - 1) / frames_a_latent(); }
  int64_t overlapping_latents() const { return latents_a_clip() - token_drop; }
  /// Returns how many frames the decoder makes before a clip's first frame. They are dropped.
  int64_t unseen_frames() const { return latents_a_clip() * frames_a_latent() - clip_length; }
  int64_t overlapping_frames() const { return overlapping_latents() * frames_a_latent() - unseen_frames(); }
};

/// Parses the config. Throws Error naming `file` and the field.
MiniMaxH3VaeConfig parse_minimax_h3_vae_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
