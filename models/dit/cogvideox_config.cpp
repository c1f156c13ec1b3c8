// Fallbacks are the defaults of diffusers' constructor, as in checkpoint/configs.cpp.
#include "models/dit/cogvideox_config.h"

#include "hilbert/error.h"
#include "models/checkpoint/config_fields.h"
#include "models/checkpoint/configs.h"
#include "models/checkpoint/model_folder.h"
#include "models/vae/cogvideox_vae_config.h"

namespace sparsereel::models {
namespace {

// Those of the pipeline in diffusers: a checkpoint's files say nothing about any.
constexpr int64_t kSteps = 50;
constexpr double kGuidance = 6, kFps = 8;

constexpr int64_t kMaxPatch = 64;

void check_positions(const ConfigFields& fields, const CogVideoXConfig& config) {
  if (config.use_rotary_positional_embeddings) {
    // get_3d_rotary_pos_embed splits a head into 1/4 for time, 3/8 for height and 3/8 for width, each of even length.
    fields.require_multiple("attention_head_dim (with use_rotary_positional_embeddings)", config.attention_head_dim,
                            16);
    if (config.use_learned_positional_embeddings && config.patch_size_t)
      fields.unsupported("use_learned_positional_embeddings", "true with patch_size_t", "false");
    return;
  }
  if (config.use_learned_positional_embeddings)
    fields.unsupported("use_learned_positional_embeddings", "true without use_rotary_positional_embeddings", "false");
  // get_3d_sincos_pos_embed splits the width into 1/4 for time, 3/8 and 3/8 for space, each a sine and a cosine half.
  fields.require_multiple("num_attention_heads x attention_head_dim",
                          config.num_attention_heads * config.attention_head_dim, 16);
  if (config.patch_size_t)
    fields.unsupported("patch_size_t", "with sine-cosine positions", "null, or use_rotary_positional_embeddings true");
}

std::string variant_of(const CogVideoXConfig& config) {
  if (config.patch_size_t)
    return "1.5 layout (rotary positions, patch_size_t " + std::to_string(*config.patch_size_t) + ")";
  return config.use_rotary_positional_embeddings ? "5b layout (rotary positions)" : "2b layout (sine-cosine positions)";
}

void require_equal(const std::string& file, const std::string& field, int64_t value, const std::string& other_field,
                   int64_t other) {
  if (value == other) return;
  throw bad_file(file,
                 field + " " + std::to_string(value) + " does not fit the transformer's " + other_field + " " +
                     std::to_string(other),
                 "use components of one checkpoint");
}

}  // namespace

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
  fields.check_width("num_attention_heads x attention_head_dim", width);
  fields.require_multiple("num_attention_heads x attention_head_dim", width, 2);  // the timestep's sine and cosine
  check_positions(fields, config);
  return config;
}

ModelSpec describe_cogvideox(const ModelFolder& folder) {
  std::string file, vae_file, text_file, scheduler_file;
  const nlohmann::json transformer = folder.config("transformer", &file), vae_json = folder.config("vae", &vae_file);
  const CogVideoXConfig config = parse_cogvideox_config(transformer, file);
  const CogVideoXVaeConfig vae = parse_cogvideox_vae_config(vae_json, vae_file);
  const SchedulerConfig scheduler = parse_scheduler_config(folder.config("scheduler", &scheduler_file), scheduler_file);
  const T5Config text = parse_t5_config(folder.config("text_encoder", &text_file), text_file);
  const auto frames_a_latent = static_cast<int64_t>(vae.temporal_compression_ratio);
  require_equal(text_file, "d_model", text.d_model, "text_embed_dim", config.text_embed_dim);
  require_equal(vae_file, "latent_channels", vae.latent_channels, "in_channels", config.in_channels);
  require_equal(file, "out_channels", config.out_channels, "in_channels", config.in_channels);
  if (transformer.contains("temporal_compression_ratio"))  // else it is only diffusers' default
    require_equal(vae_file, "temporal_compression_ratio", frames_a_latent, "temporal_compression_ratio",
                  config.temporal_compression_ratio);
  const int64_t pixels = vae.pixels_a_latent(), side = config.patch_size;
  ModelSpec spec;
  spec.variant = variant_of(config);
  spec.marks = {{"patch_size_t", config.patch_size_t ? std::to_string(*config.patch_size_t) : "null"}};
  spec.layers = config.num_layers;
  spec.heads = config.num_attention_heads;
  spec.head_dim = config.attention_head_dim;
  spec.latent_channels = config.in_channels;
  spec.text_length = config.max_text_seq_length;
  spec.train_steps = scheduler.num_train_timesteps;
  spec.patch = {config.patch_size_t.value_or(1), side, side};
  spec.stride = {frames_a_latent, pixels, pixels};
  spec.defaults = {.width = config.sample_width * pixels,
                   .height = config.sample_height * pixels,
                   .frames = config.sample_frames,
                   .steps = kSteps,
                   .guidance = kGuidance,
                   .fps = kFps,
                   .sampler = scheduler.class_name};
  return spec;
}

}  // namespace sparsereel::models
