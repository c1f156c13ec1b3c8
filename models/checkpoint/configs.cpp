// Reads the config.json of each component. The fallbacks are the defaults of diffusers' and transformers' constructors,
// which need not be those of a published checkpoint: a file that leaves a field out means the former.
#include "models/checkpoint/configs.h"

#include <nlohmann/json.hpp>

#include "models/checkpoint/config_fields.h"
#include "models/family.h"

namespace sparsereel::models {

T5Config parse_t5_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.choice("feed_forward_proj", "relu", {"gated-gelu"});
  // transformers derives these two from feed_forward_proj, and lets the file override them.
  if (!fields.boolean("is_gated_act", true)) fields.unsupported("is_gated_act", "false", "true");
  fields.choice("dense_act_fn", "gelu_new", {"gelu_new"});
  T5Config config;
  config.bias_per_layer = fields.choice("model_type", "t5", {"t5", "umt5"}) == "umt5";
  config.vocab_size = fields.integer("vocab_size", 32128);
  config.d_model = fields.integer("d_model", 512);
  config.d_kv = fields.integer("d_kv", 64);
  config.d_ff = fields.integer("d_ff", 2048);
  config.num_layers = fields.integer("num_layers", 6, 1, kMaxLayers);
  config.num_heads = fields.integer("num_heads", 8);
  config.relative_attention_num_buckets = fields.integer("relative_attention_num_buckets", 32, 4);
  config.relative_attention_max_distance = fields.integer("relative_attention_max_distance", 128);
  config.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-6, 0, 1);
  fields.check_width("num_heads x d_kv", config.num_heads * config.d_kv);
  fields.require_multiple("relative_attention_num_buckets", config.relative_attention_num_buckets, 2);
  // Half of the buckets for each direction, half of those for exact distances; the rest grow up to the maximum.
  if (config.relative_attention_max_distance <= config.relative_attention_num_buckets / 4)
    fields.fail("relative_attention_max_distance", "is not above a quarter of relative_attention_num_buckets");
  return config;
}

SchedulerConfig parse_scheduler_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  SchedulerConfig config;
  std::vector<std::string> classes;
  for (const SamplerName& sampler : all_samplers()) classes.push_back(sampler.class_name);
  config.class_name = fields.choice("_class_name", "", classes);
  config.num_train_timesteps = fields.integer("num_train_timesteps", 1000, 1, 1'000'000);
  config.beta_start = fields.number("beta_start", 0.00085, 0, 1);
  config.beta_end = fields.number("beta_end", 0.0120, 0, 1);
  config.beta_schedule =
      fields.choice("beta_schedule", "scaled_linear", {"linear", "scaled_linear", "squaredcos_cap_v2"});
  config.trained_betas = fields.optional_numbers("trained_betas", 0, 1);
  config.set_alpha_to_one = fields.boolean("set_alpha_to_one", true);
  config.steps_offset = fields.integer("steps_offset", 0, 0, config.num_train_timesteps);
  config.prediction_type = fields.choice("prediction_type", "epsilon", {"epsilon", "sample", "v_prediction"});
  config.timestep_spacing = fields.choice("timestep_spacing", "leading", {"linspace", "leading", "trailing"});
  config.rescale_betas_zero_snr = fields.boolean("rescale_betas_zero_snr", false);
  config.snr_shift_scale = fields.positive_number("snr_shift_scale", 3.0);
  if (config.beta_start > config.beta_end) fields.fail("beta_start", "is above beta_end");
  const auto betas = static_cast<int64_t>(config.trained_betas.size());
  if (betas != 0 && betas != config.num_train_timesteps)
    fields.fail("trained_betas", "has " + std::to_string(betas) + " entries, num_train_timesteps is " +
                                     std::to_string(config.num_train_timesteps));
  return config;
}

}  // namespace sparsereel::models
