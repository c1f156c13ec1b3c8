// The config.json of Open-Sora-Plan's VAE. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

/// The config of CausalVAEModel in version 1.2.0 of PKU-YuanGroup/Open-Sora-Plan, without the encoder's fields.
struct OpenSoraPlanVaeConfig {
  static constexpr int64_t kNormGroups = 32;  // fixed by the reference, like kNormEps
  static constexpr double kNormEps = 1e-6;
  enum class Upsampling { none, pixels, pixels_and_frames };

  int64_t hidden_size = 128;
  int64_t z_channels = 4;  // channels inside the decoder
  int64_t embed_dim = 4;   // channels of the latents
  int64_t num_res_blocks = 2;
  /// One entry for each level, from pixels to latents, as in the two lists below.
  std::vector<int64_t> hidden_size_mult = {1, 2, 4, 4};
  std::vector<Upsampling> upsampling = {};
  /// true: the level doubles the frames, without a convolution, after it has upsampled height and width.
  std::vector<bool> doubles_frames = {};
  bool use_quant_layer = true;
  double scaling_factor = 0.18215;  // this number is in the reference's code, not in checkpoints

  int64_t pixels_a_latent() const;
  int64_t frames_a_latent() const;
};

/// Parses the config. Throws Error naming `file` and the field.
OpenSoraPlanVaeConfig parse_open_sora_plan_vae_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
