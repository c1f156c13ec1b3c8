// The config.json of the components that families share, as plain structs; a family's own stand beside its model files.
// Field names are diffusers' and transformers' own. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sparsereel::models {

/// transformers' T5Config or UMT5Config of an encoder; feed_forward_proj must be gated-gelu (T5 v1.1).
struct T5Config {
  bool bias_per_layer = false;  // UMT5; T5's layers share the first one's relative bias
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

/// diffusers' discrete schedulers or, with the last two fields and no betas, those of flow matching. Not read:
/// clip_sample and clip_sample_range, as none of them ever clips.
struct SchedulerConfig {
  std::string class_name;
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
SchedulerConfig parse_scheduler_config(const nlohmann::json& json, const std::string& file);
/// The schedulers of flow-matching models: UniPCMultistepScheduler (second order, flow sigmas) and
/// FlowMatchEulerDiscreteScheduler.
SchedulerConfig parse_flow_scheduler_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
