// The config.json of CogVideoX's transformer. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

class Checkpoint;

/// The config of diffusers' CogVideoXTransformer3DModel.
struct CogVideoXConfig {
  int64_t num_attention_heads = 30;
  int64_t attention_head_dim = 64;
  int64_t in_channels = 16;
  int64_t out_channels = 16;
  bool flip_sin_to_cos = true;
  double freq_shift = 0;
  int64_t time_embed_dim = 512;
  /// Width of the embedding of a constant. The image-to-video model of CogVideoX 1.5 adds this embedding to the
  /// timestep's.
  std::optional<int64_t> ofs_embed_dim;
  int64_t text_embed_dim = 4096;
  int64_t num_layers = 30;
  bool attention_bias = true;
  int64_t sample_width = 90;
  int64_t sample_height = 60;
  int64_t sample_frames = 49;
  int64_t patch_size = 2;
  std::optional<int64_t> patch_size_t;
  int64_t temporal_compression_ratio = 4;
  int64_t max_text_seq_length = 226;
  bool norm_elementwise_affine = true;
  double norm_eps = 1e-5;
  double spatial_interpolation_scale = 1.875;
  double temporal_interpolation_scale = 1.0;
  bool use_rotary_positional_embeddings = false;
  bool use_learned_positional_embeddings = false;
  bool patch_bias = true;

  /// Returns true if the transformer takes the channels of an image's latents after the noise channels.
  bool takes_image() const { return in_channels == 2 * out_channels; }
  int64_t width() const { return num_attention_heads * attention_head_dim; }
};

/// Parses the config. Throws Error naming `file` and the field.
CogVideoXConfig parse_cogvideox_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
