// The config.json of each component as plain structs. Field names are diffusers' and transformers' own. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sparsereel::models {

/// transformers' T5Config of an encoder; feed_forward_proj must be gated-gelu (T5 v1.1).
struct T5Config {
  int64_t vocab_size = 32128;
  int64_t d_model = 4096;
  int64_t d_kv = 64;
  int64_t d_ff = 10240;
  int64_t num_layers = 24;
  int64_t num_heads = 64;
  int64_t relative_attention_num_buckets = 32;
  int64_t relative_attention_max_distance = 128;
  double layer_norm_epsilon = 1e-6;
};

/// diffusers' CogVideoXTransformer3DModel.
struct CogVideoXConfig {
  int64_t num_attention_heads = 30;
  int64_t attention_head_dim = 64;
  int64_t in_channels = 16;
  int64_t out_channels = 16;
  bool flip_sin_to_cos = true;
  double freq_shift = 0;
  int64_t time_embed_dim = 512;
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
};

/// diffusers' AutoencoderKLCogVideoX (decoder part). Not read, as they change nothing there: norm_eps, which the
/// decoder's norms ignore, and invert_scale_latents, which only concerns encoding an image.
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
};

/// diffusers' CogVideoXDDIMScheduler and CogVideoXDPMScheduler, or, with the last two fields and no betas, those of
/// flow matching. Not read: clip_sample and clip_sample_range, as neither ever clips.
struct SchedulerConfig {
  std::string class_name = "CogVideoXDDIMScheduler";
  int64_t num_train_timesteps = 1000;
  double beta_start = 0.00085;
  double beta_end = 0.0120;
  std::string beta_schedule = "scaled_linear";  // linear, scaled_linear, squaredcos_cap_v2
  std::vector<double> trained_betas;
  bool set_alpha_to_one = true;
  int64_t steps_offset = 0;
  std::string prediction_type = "v_prediction";  // epsilon, sample, v_prediction
  std::string timestep_spacing = "trailing";     // linspace, leading, trailing
  bool rescale_betas_zero_snr = true;
  double snr_shift_scale = 3.0;
  double flow_shift = 1.0;                 // UniPC's flow_shift, FlowMatchEuler's shift
  std::vector<int64_t> disable_corrector;  // UniPC's steps, from 0, whose result stays uncorrected
};

/// Each parser reads one config.json. A missing field takes the class's default (as the reference does); a field of a
/// wrong JSON type or impossible value, or a feature that is not supported, throws Error naming `file` and the field.
T5Config parse_t5_config(const nlohmann::json& json, const std::string& file);
CogVideoXConfig parse_cogvideox_config(const nlohmann::json& json, const std::string& file);
CogVideoXVaeConfig parse_cogvideox_vae_config(const nlohmann::json& json, const std::string& file);
SchedulerConfig parse_scheduler_config(const nlohmann::json& json, const std::string& file);
/// The schedulers of flow-matching models: UniPCMultistepScheduler (second order, flow sigmas) and
/// FlowMatchEulerDiscreteScheduler.
SchedulerConfig parse_flow_scheduler_config(const nlohmann::json& json, const std::string& file);

/// Tokens of one guidance pass, text included; the sizes are the latents'.
double token_count(const CogVideoXConfig& config, int64_t frames, int64_t height, int64_t width, int64_t text_tokens);

}  // namespace sparsereel::models
