// A checkpoint's scheduler_config.json as a struct, with diffusers' field names. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sparsereel::models {

enum class SamplerKind {
  ddim,
  dpm_solver,
  euler_ancestral,
  flow_dpm_solver,
  flow_euler,
  flow_lcm,
  flow_to_data,
  unipc
};

/// Returns true if SchedulerConfig::flow_shift applies to this kind.
constexpr bool has_flow_shift(SamplerKind kind) {
  return kind == SamplerKind::flow_dpm_solver || kind == SamplerKind::flow_euler || kind == SamplerKind::flow_lcm ||
         kind == SamplerKind::flow_to_data || kind == SamplerKind::unipc;
}

/// Returns true if the steps of this kind draw noise.
constexpr bool draws(SamplerKind kind) {
  return kind == SamplerKind::dpm_solver || kind == SamplerKind::euler_ancestral || kind == SamplerKind::flow_lcm;
}

/// The config of one of diffusers' schedulers. Discrete schedulers use the fields up to snr_shift_scale; flow-matching
/// schedulers use num_train_timesteps and the last four fields. clip_sample and clip_sample_range are not read, because
/// none of our samplers clips.
struct SchedulerConfig {
  SamplerKind kind = SamplerKind::ddim;
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
  double flow_shift = 1.0;  // the field flow_shift of UniPC and DPM-Solver, `shift` of FlowMatchEuler and FlowMatchLCM
  /// Flow matching's noise levels before the shift, one for each step. If empty, they are evenly spaced.
  std::vector<double> sigmas;
  bool invert_sigmas = false;              // FlowMatchEuler only: levels rise from 0 (noise) to 1 (clean)
  std::vector<int64_t> disable_corrector;  // UniPC only: steps, counted from 0, whose results are not corrected
};

}  // namespace sparsereel::models
