// Parses the configs of flow-matching samplers. Missing fields take diffusers' defaults. Betas and timestep_spacing are
// not read, because flow matching does not use them.
#include "models/samplers/flow_config.h"

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

void require(const ConfigFields& fields, const char* field, bool fallback, bool wanted) {
  const auto text = [](bool value) { return value ? "true" : "false"; };
  if (fields.boolean(field, fallback) != wanted) fields.unsupported(field, text(!wanted), text(wanted));
}

SchedulerConfig parse_common(const ConfigFields& fields) {
  for (const char* field : {"use_dynamic_shifting", "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"})
    require(fields, field, false, false);
  fields.require_null("shift_terminal");
  SchedulerConfig config;
  config.num_train_timesteps = fields.integer("num_train_timesteps", 1000, 1, 1'000'000);
  config.prediction_type = "flow_prediction";
  return config;
}

SchedulerConfig parse_multistep(const ConfigFields& fields) {
  SchedulerConfig config = parse_common(fields);
  fields.choice("prediction_type", "epsilon", {"flow_prediction"});
  require(fields, "use_flow_sigmas", false, true);
  require(fields, "thresholding", false, false);
  // The last step must be of first order, because its span in log-SNR is infinite.
  require(fields, "lower_order_final", true, true);
  fields.choice("final_sigmas_type", "zero", {"zero"});
  const int64_t order = fields.integer("solver_order", 2);
  if (order != 2) fields.unsupported("solver_order", std::to_string(order), "2");
  config.flow_shift = fields.positive_number("flow_shift", 1);
  return config;
}

}  // namespace

SchedulerConfig parse_flow_dpm_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  require(fields, "use_lu_lambdas", false, false);
  fields.choice("algorithm_type", "dpmsolver++", {"dpmsolver++"});
  fields.choice("solver_type", "midpoint", {"midpoint"});
  fields.require_null("variance_type");
  return parse_multistep(fields);
}

SchedulerConfig parse_unipc_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  SchedulerConfig config = parse_multistep(fields);
  require(fields, "predict_x0", true, true);
  fields.choice("solver_type", "bh2", {"bh2"});
  fields.require_null("solver_p");
  config.disable_corrector = fields.integers("disable_corrector", {}, 0);
  return config;
}

SchedulerConfig parse_flow_euler_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  SchedulerConfig config = parse_common(fields);
  require(fields, "stochastic_sampling", false, false);
  config.invert_sigmas = fields.boolean("invert_sigmas", false);
  config.flow_shift = fields.positive_number("shift", 1);
  return config;
}

SchedulerConfig parse_flow_lcm_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  SchedulerConfig config = parse_common(fields);
  require(fields, "invert_sigmas", false, false);
  fields.require_null("scale_factors");
  config.flow_shift = fields.positive_number("shift", 1);
  return config;
}

}  // namespace sparsereel::models
