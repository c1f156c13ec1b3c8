// Parses the config of CogVideoX's transformer. Missing fields take the defaults of diffusers' constructor.
#include "models/families/cogvideox/config.h"

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMaxPatch = 64;

void check_positions(const ConfigFields& fields, const CogVideoXConfig& config) {
  if (config.use_rotary_positional_embeddings) {
    // diffusers' get_3d_rotary_pos_embed splits a head's channels into 1/4 for time, 3/8 for height and 3/8 for width.
    // Each part must have an even number of channels.
    fields.require_multiple("attention_head_dim (with use_rotary_positional_embeddings)", config.attention_head_dim,
                            16);
    if (config.use_learned_positional_embeddings && config.patch_size_t)
      fields.unsupported("use_learned_positional_embeddings", "true with patch_size_t", "false");
    return;
  }
  if (config.use_learned_positional_embeddings)
    fields.unsupported("use_learned_positional_embeddings", "true without use_rotary_positional_embeddings", "false");
  // diffusers' get_3d_sincos_pos_embed splits the width into 1/4 for time, 3/8 for height and 3/8 for width. Half of
  // each part is sines, the other half cosines.
  fields.require_multiple("num_attention_heads x attention_head_dim", config.width(), 16);
  if (config.patch_size_t)
    fields.unsupported("patch_size_t", "with sine-cosine positions", "null, or use_rotary_positional_embeddings true");
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
  config.ofs_embed_dim = fields.optional_integer("ofs_embed_dim");
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
  fields.check_width("num_attention_heads x attention_head_dim", config.width());
  fields.require_multiple("num_attention_heads x attention_head_dim", config.width(),
                          2);  // half of the timestep's embedding is sines, half cosines
  check_positions(fields, config);
  if (config.in_channels != config.out_channels && !config.takes_image())
    fields.unsupported("in_channels", std::to_string(config.in_channels),
                       "out_channels, or twice that (image to video): " + std::to_string(config.out_channels) + " or " +
                           std::to_string(2 * config.out_channels));
  if (config.ofs_embed_dim.value_or(config.time_embed_dim) != config.time_embed_dim)
    fields.fail("ofs_embed_dim", "is " + std::to_string(*config.ofs_embed_dim) + ", but it is added to the " +
                                     std::to_string(config.time_embed_dim) + " channels of time_embed_dim");
  return config;
}

}  // namespace sparsereel::models
