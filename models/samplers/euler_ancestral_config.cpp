// Parses the config of ancestral sampling. Missing fields take the defaults of diffusers' constructor.
#include "models/samplers/euler_ancestral_config.h"

#include "models/files/config_fields.h"

namespace sparsereel::models {

SchedulerConfig parse_euler_ancestral_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_null("trained_betas");
  if (fields.boolean("rescale_betas_zero_snr", false)) fields.unsupported("rescale_betas_zero_snr", "true", "false");
  SchedulerConfig config;
  config.num_train_timesteps = fields.integer("num_train_timesteps", 1000, 1, 1'000'000);
  config.beta_start = fields.number("beta_start", 0.0001, 0, 1);
  config.beta_end = fields.number("beta_end", 0.02, 0, 1);
  config.beta_schedule = fields.choice("beta_schedule", "linear", {"linear", "scaled_linear"});
  config.prediction_type = fields.choice("prediction_type", "epsilon", {"epsilon", "v_prediction"});
  config.timestep_spacing = fields.choice("timestep_spacing", "linspace", {"linspace", "leading"});
  config.steps_offset = fields.integer("steps_offset", 0, 0, config.num_train_timesteps);
  if (config.beta_start > config.beta_end) fields.fail("beta_start", "is above beta_end");
  if (config.beta_start == 0 || config.beta_end == 1)
    fields.fail(config.beta_start == 0 ? "beta_start" : "beta_end",
                "makes a timestep without noise, or without signal");
  return config;
}

}  // namespace sparsereel::models
