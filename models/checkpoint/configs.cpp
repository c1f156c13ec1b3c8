// Reads the config.json of each component. The fallbacks are the defaults of diffusers' and transformers' constructors,
// which need not be those of a published checkpoint: a file that leaves a field out means the former.
#include "models/checkpoint/configs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/checkpoint/config_fields.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxPatch = 64;

std::string number(int64_t value) {
  return std::to_string(value);
}

void require_multiple(const ConfigFields& fields, const std::string& field, int64_t value, int64_t divisor) {
  if (value % divisor != 0) fields.fail(field, "is " + number(value) + ", not a multiple of " + number(divisor));
}

/// heads x head size: the attention's width.
void check_width(const ConfigFields& fields, const std::string& field, int64_t width) {
  if (width > kMaxSize) fields.fail(field, "is " + number(width) + ", above " + number(kMaxSize));
}

void check_cogvideox_positions(const ConfigFields& fields, const CogVideoXConfig& config) {
  if (config.use_rotary_positional_embeddings) {
    // get_3d_rotary_pos_embed splits a head into 1/4 for time, 3/8 for height and 3/8 for width, each of even length.
    require_multiple(fields, "attention_head_dim (with use_rotary_positional_embeddings)", config.attention_head_dim,
                     16);
    if (config.use_learned_positional_embeddings && config.patch_size_t)
      fields.unsupported("use_learned_positional_embeddings", "true with patch_size_t", "false");
    return;
  }
  if (config.use_learned_positional_embeddings)
    fields.unsupported("use_learned_positional_embeddings", "true without use_rotary_positional_embeddings", "false");
  // get_3d_sincos_pos_embed splits the width into 1/4 for time, 3/8 and 3/8 for space, each a sine and a cosine half.
  require_multiple(fields, "num_attention_heads x attention_head_dim",
                   config.num_attention_heads * config.attention_head_dim, 16);
  if (config.patch_size_t)
    fields.unsupported("patch_size_t", "with sine-cosine positions", "null, or use_rotary_positional_embeddings true");
}

}  // namespace

T5Config parse_t5_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.choice("model_type", "t5", {"t5"});
  fields.choice("feed_forward_proj", "relu", {"gated-gelu"});
  // transformers derives these two from feed_forward_proj, and lets the file override them.
  if (!fields.boolean("is_gated_act", true)) fields.unsupported("is_gated_act", "false", "true");
  fields.choice("dense_act_fn", "gelu_new", {"gelu_new"});
  T5Config config;
  config.vocab_size = fields.integer("vocab_size", 32128);
  config.d_model = fields.integer("d_model", 512);
  config.d_kv = fields.integer("d_kv", 64);
  config.d_ff = fields.integer("d_ff", 2048);
  config.num_layers = fields.integer("num_layers", 6, 1, kMaxLayers);
  config.num_heads = fields.integer("num_heads", 8);
  config.relative_attention_num_buckets = fields.integer("relative_attention_num_buckets", 32, 4);
  config.relative_attention_max_distance = fields.integer("relative_attention_max_distance", 128);
  config.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-6, 0, 1);
  check_width(fields, "num_heads x d_kv", config.num_heads * config.d_kv);
  require_multiple(fields, "relative_attention_num_buckets", config.relative_attention_num_buckets, 2);
  // Half of the buckets for each direction, half of those for exact distances; the rest grow up to the maximum.
  if (config.relative_attention_max_distance <= config.relative_attention_num_buckets / 4)
    fields.fail("relative_attention_max_distance", "is not above a quarter of relative_attention_num_buckets");
  return config;
}

CogVideoXConfig parse_cogvideox_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class("CogVideoXTransformer3DModel");
  fields.choice("activation_fn", "gelu-approximate", {"gelu-approximate"});
  fields.choice("timestep_activation_fn", "silu", {"silu"});
  CogVideoXConfig config;
  config.num_attention_heads = fields.integer("num_attention_heads", 30);
  config.attention_head_dim = fields.integer("attention_head_dim", 64);
  config.in_channels = fields.integer("in_channels", 16);
  config.out_channels = fields.integer("out_channels", 16);
  config.flip_sin_to_cos = fields.boolean("flip_sin_to_cos", true);
  config.freq_shift = fields.number("freq_shift", 0, 0, 1);
  config.time_embed_dim = fields.integer("time_embed_dim", 512);
  if (fields.optional_integer("ofs_embed_dim")) fields.unsupported("ofs_embed_dim", "(image to video)", "null");
  config.text_embed_dim = fields.integer("text_embed_dim", 4096);
  config.num_layers = fields.integer("num_layers", 30, 1, kMaxLayers);
  config.attention_bias = fields.boolean("attention_bias", true);
  config.sample_width = fields.integer("sample_width", 90);
  config.sample_height = fields.integer("sample_height", 60);
  config.sample_frames = fields.integer("sample_frames", 49);
  config.patch_size = fields.integer("patch_size", 2, 1, kMaxPatch);
  config.patch_size_t = fields.optional_integer("patch_size_t", 1, kMaxPatch);
  config.temporal_compression_ratio = fields.integer("temporal_compression_ratio", 4);
  config.max_text_seq_length = fields.integer("max_text_seq_length", 226);
  config.norm_elementwise_affine = fields.boolean("norm_elementwise_affine", true);
  config.norm_eps = fields.number("norm_eps", 1e-5, 0, 1);
  config.spatial_interpolation_scale = fields.positive_number("spatial_interpolation_scale", 1.875);
  config.temporal_interpolation_scale = fields.positive_number("temporal_interpolation_scale", 1.0);
  config.use_rotary_positional_embeddings = fields.boolean("use_rotary_positional_embeddings", false);
  config.use_learned_positional_embeddings = fields.boolean("use_learned_positional_embeddings", false);
  config.patch_bias = fields.boolean("patch_bias", true);
  const int64_t width = config.num_attention_heads * config.attention_head_dim;
  check_width(fields, "num_attention_heads x attention_head_dim", width);
  require_multiple(fields, "num_attention_heads x attention_head_dim", width, 2);  // the timestep's sine and cosine
  check_cogvideox_positions(fields, config);
  return config;
}

double token_count(const CogVideoXConfig& config, int64_t frames, int64_t height, int64_t width, int64_t text_tokens) {
  const int64_t depth = config.patch_size_t.value_or(1);
  const int64_t groups = (frames + depth - 1) / depth, rows = height / config.patch_size,
                columns = width / config.patch_size;
  return static_cast<double>(groups) * static_cast<double>(rows) * static_cast<double>(columns) +
         static_cast<double>(text_tokens);
}

CogVideoXVaeConfig parse_cogvideox_vae_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class("AutoencoderKLCogVideoX");
  fields.choice("act_fn", "silu", {"silu"});
  for (const char* field : {"latents_mean", "latents_std", "shift_factor"}) fields.require_null(field);
  CogVideoXVaeConfig config;
  config.out_channels = fields.integer("out_channels", 3);
  config.block_out_channels = fields.integers("block_out_channels", {128, 256, 256, 512});
  config.latent_channels = fields.integer("latent_channels", 16);
  config.layers_per_block = fields.integer("layers_per_block", 3, 1, kMaxLayers);
  config.norm_num_groups = fields.integer("norm_num_groups", 32);
  config.temporal_compression_ratio = fields.number("temporal_compression_ratio", 4, 1, 1024);
  config.sample_height = fields.integer("sample_height", 480);
  config.sample_width = fields.integer("sample_width", 720);
  config.scaling_factor = fields.positive_number("scaling_factor", 1.15258426);
  config.use_post_quant_conv = fields.boolean("use_post_quant_conv", false);

  const size_t blocks = config.block_out_channels.size();
  if (blocks == 0 || blocks > 16)
    fields.fail("block_out_channels", "has " + std::to_string(blocks) + " entries, not 1 to 16");
  for (const int64_t channels : config.block_out_channels)
    require_multiple(fields, "block_out_channels (by norm_num_groups)", channels, config.norm_num_groups);
  const auto types = fields.strings("up_block_types", std::vector<std::string>(4, "CogVideoXUpBlock3D"));
  if (types.size() != blocks)
    fields.fail("up_block_types",
                "has " + std::to_string(types.size()) + " entries, block_out_channels " + std::to_string(blocks));
  if (std::any_of(types.begin(), types.end(), [](const std::string& type) { return type != "CogVideoXUpBlock3D"; }))
    fields.unsupported("up_block_types", "with another type", "CogVideoXUpBlock3D throughout");
  // Each doubling of time is one upsampling, and the last block does none.
  const double doublings = std::log2(config.temporal_compression_ratio);
  if (doublings != std::floor(doublings) || doublings > static_cast<double>(blocks - 1))
    fields.fail("temporal_compression_ratio", "is not a power of two of at most 2^" + std::to_string(blocks - 1) +
                                                  ", one doubling a block but the last");
  if (config.use_post_quant_conv && config.latent_channels != config.out_channels)
    fields.unsupported("use_post_quant_conv", "true where latent_channels differs from out_channels", "false");
  return config;
}

SchedulerConfig parse_scheduler_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  SchedulerConfig config;
  config.class_name = fields.choice("_class_name", "", {"CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"});
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
    fields.fail("trained_betas",
                "has " + number(betas) + " entries, num_train_timesteps is " + number(config.num_train_timesteps));
  return config;
}

}  // namespace sparsereel::models
