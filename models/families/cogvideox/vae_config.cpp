// Parses the config of CogVideoX's VAE. Missing fields take the defaults of diffusers' constructor.
#include "models/families/cogvideox/vae_config.h"

#include <algorithm>
#include <cmath>

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

void check_types(const ConfigFields& fields, const char* field, const std::string& type, size_t blocks) {
  const auto types = fields.strings(field, std::vector<std::string>(4, type));
  if (types.size() != blocks)
    fields.fail(field, "has " + std::to_string(types.size()) + " entries, but block_out_channels has " +
                           std::to_string(blocks));
  if (std::any_of(types.begin(), types.end(), [&](const std::string& other) { return other != type; }))
    fields.unsupported(field, "with another type", type + " throughout");
}

void check_encoder(const ConfigFields& fields, const CogVideoXVaeConfig& config) {
  constexpr double kMostFramesALatent = 8;  // so that a batch of eight frames has at least one latent frame
  check_types(fields, "down_block_types", "CogVideoXDownBlock3D", config.block_out_channels.size());
  if (config.in_channels != 3)
    fields.fail("in_channels", "is " + std::to_string(config.in_channels) + ", but frames have three colors");
  if (config.temporal_compression_ratio > kMostFramesALatent)
    fields.unsupported("temporal_compression_ratio", "above 8, in an encoder", "8 at most");
  if (config.use_quant_conv && config.latent_channels != config.out_channels)
    fields.unsupported("use_quant_conv", "true where latent_channels differs from out_channels", "false");
}

}  // namespace

size_t CogVideoXVaeConfig::time_halvings() const {
  return static_cast<size_t>(std::log2(temporal_compression_ratio));
}

CogVideoXVaeConfig parse_cogvideox_vae_config(const nlohmann::json& json, const std::string& file, bool with_encoder) {
  const ConfigFields fields(json, file);
  fields.require_class("AutoencoderKLCogVideoX");
  fields.choice("act_fn", "silu", {"silu"});
  for (const char* field : {"latents_mean", "latents_std", "shift_factor"}) fields.require_null(field);
  CogVideoXVaeConfig config;
  config.in_channels = fields.integer("in_channels", 3);
  config.out_channels = fields.integer("out_channels", 3);
  config.block_out_channels = fields.integers("block_out_channels", {128, 256, 256, 512});
  config.latent_channels = fields.integer("latent_channels", 16);
  config.layers_per_block = fields.integer("layers_per_block", 3, 1, kMaxLayers);
  config.norm_num_groups = fields.integer("norm_num_groups", 32);
  config.norm_eps = fields.number("norm_eps", 1e-6, 0, 1);
  config.temporal_compression_ratio = fields.number("temporal_compression_ratio", 4, 1, 1024);
  config.sample_height = fields.integer("sample_height", 480);
  config.sample_width = fields.integer("sample_width", 720);
  config.scaling_factor = fields.positive_number("scaling_factor", 1.15258426);
  config.invert_scale_latents = fields.boolean("invert_scale_latents", false);
  config.use_quant_conv = fields.boolean("use_quant_conv", false);
  config.use_post_quant_conv = fields.boolean("use_post_quant_conv", false);

  const size_t blocks = config.block_out_channels.size();
  if (blocks == 0 || blocks > 16)
    fields.fail("block_out_channels", "has " + std::to_string(blocks) + " entries, not 1 to 16");
  for (const int64_t channels : config.block_out_channels)
    fields.require_multiple("block_out_channels (by norm_num_groups)", channels, config.norm_num_groups);
  check_types(fields, "up_block_types", "CogVideoXUpBlock3D", blocks);
  // Each upsampling may double the number of frames, and the last block has no upsampling.
  const double doublings = std::log2(config.temporal_compression_ratio);
  if (doublings != std::floor(doublings) || doublings > static_cast<double>(blocks - 1))
    fields.fail("temporal_compression_ratio", "is not a power of two from 1 to 2^" + std::to_string(blocks - 1) +
                                                  ": each block but the last can double the frames once");
  if (config.use_post_quant_conv && config.latent_channels != config.out_channels)
    fields.unsupported("use_post_quant_conv", "true where latent_channels differs from out_channels", "false");
  if (with_encoder) check_encoder(fields, config);
  return config;
}

}  // namespace sparsereel::models
