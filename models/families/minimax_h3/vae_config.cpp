// Parses the config of MiniMax-H3's video VAE. Missing fields take the defaults of diffusers' constructor.
#include "models/families/minimax_h3/vae_config.h"

#include <functional>
#include <numeric>

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

constexpr double kLargestNumber = 1e6;
constexpr int64_t kMostChannels = 8192, kMostStride = 64;

// Reads one number for each channel of the latents. A missing field gives `fallback` for all channels.
std::vector<double> numbers_of_channels(const ConfigFields& fields, const char* field, double least, double fallback,
                                        int64_t channels) {
  std::vector<double> numbers = fields.optional_numbers(field, least, kLargestNumber);
  if (numbers.empty()) numbers.assign(static_cast<size_t>(channels), fallback);
  if (std::ssize(numbers) != channels)
    fields.fail(field, "has " + std::to_string(numbers.size()) + " entries, but latent_channels is " +
                           std::to_string(channels));
  return numbers;
}

void check_channels(const ConfigFields& fields, const char* field, int64_t wanted) {
  if (const int64_t given = fields.integer(field, wanted); given != wanted)
    fields.unsupported(field, std::to_string(given), std::to_string(wanted));
}

int64_t multiplied(const std::vector<int64_t>& factors) {
  return std::accumulate(factors.begin(), factors.end(), int64_t{1}, std::multiplies<>());
}

void check_levels(const ConfigFields& fields, const MiniMaxH3VaeConfig& config) {
  const std::vector<int64_t>&channels = config.block_out_channels, &spatial = config.spatial_downsample_factors,
        &temporal = config.temporal_downsample_factors;
  if (channels.empty() || channels.size() > 8)
    fields.fail("block_out_channels", "has " + std::to_string(channels.size()) + " entries, not 1 to 8");
  for (const auto& [field, factors] :
       {std::pair{"spatial_downsample_factors", &spatial}, {"temporal_downsample_factors", &temporal}}) {
    if (factors->size() != channels.size())
      fields.fail(field, "has " + std::to_string(factors->size()) + " entries, but block_out_channels has " +
                             std::to_string(channels.size()));
    for (const int64_t factor : *factors)
      if (factor > 2) fields.unsupported(field, "with the entry " + std::to_string(factor), "1 and 2");
    if (multiplied(*factors) > kMostStride)
      fields.fail(field, "multiplies to " + std::to_string(multiplied(*factors)) + ", which is more than " +
                             std::to_string(kMostStride));
  }
  for (size_t i = 0; i < channels.size(); ++i) {
    if (channels[i] > kMostChannels)
      fields.fail("block_out_channels", "has the entry " + std::to_string(channels[i]) + ", which is more than " +
                                            std::to_string(kMostChannels));
    fields.require_multiple("block_out_channels (by norm_num_groups)", channels[i], config.norm_num_groups);
    if (temporal[i] > 1 && spatial[i] == 1)
      fields.unsupported("temporal_downsample_factors", "2 where spatial_downsample_factors has 1", "2 and 2");
  }
}

void check_decoder(const ConfigFields& fields, const MiniMaxH3VaeConfig& config) {
  fields.check_width("decoder_num_attention_heads x decoder_attention_head_dim", config.decoder_width());
  fields.check_width("decoder_ffn_mult x decoder width", config.decoder_ffn_mult * config.decoder_width());
  const double rotated = config.decoder_rope_dim_ratio * static_cast<double>(config.decoder_attention_head_dim);
  if (config.rotated_channels() % 6 != 0 || rotated < 6)
    fields.fail("decoder_rope_dim_ratio", "makes rotary embeddings rotate " + std::to_string(rotated) +
                                              " channels of a head, which is no multiple of 6");
  fields.require_multiple("decoder_attention_head_dim", config.decoder_attention_head_dim, 2);
}

void check_clips(const ConfigFields& fields, const MiniMaxH3VaeConfig& config) {
  if (config.token_drop >= config.latents_a_clip())
    fields.fail("token_drop", "is " + std::to_string(config.token_drop) + ", but a clip of clip_length " +
                                  std::to_string(config.clip_length) + " has only " +
                                  std::to_string(config.latents_a_clip()) + " latent frames");
}

}  // namespace

int64_t MiniMaxH3VaeConfig::pixels_a_latent() const {
  return multiplied(spatial_downsample_factors);
}

int64_t MiniMaxH3VaeConfig::frames_a_latent() const {
  return multiplied(temporal_downsample_factors);
}

int64_t MiniMaxH3VaeConfig::rotated_channels() const {
  return static_cast<int64_t>(decoder_rope_dim_ratio * static_cast<double>(decoder_attention_head_dim));
}

MiniMaxH3VaeConfig parse_minimax_h3_vae_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class("AutoencoderKLMiniMaxH3");
  fields.choice("spatial_padding_mode", "reflect", {"reflect"});
  check_channels(fields, "in_channels", 3);
  check_channels(fields, "out_channels", 3);
  MiniMaxH3VaeConfig config;
  config.latent_channels = fields.integer("latent_channels", config.latent_channels, 1, kMostChannels);
  config.block_out_channels = fields.integers("block_out_channels", config.block_out_channels);
  config.layers_per_block = fields.integer("layers_per_block", config.layers_per_block, 1, kMaxLayers);
  config.spatial_downsample_factors = fields.integers("spatial_downsample_factors", config.spatial_downsample_factors);
  config.temporal_downsample_factors =
      fields.integers("temporal_downsample_factors", config.temporal_downsample_factors);
  config.norm_num_groups = fields.integer("norm_num_groups", config.norm_num_groups);
  config.norm_eps = fields.number("norm_eps", config.norm_eps, 0, 1);
  config.decoder_num_layers = fields.integer("decoder_num_layers", config.decoder_num_layers, 1, kMaxLayers);
  config.decoder_num_attention_heads =
      fields.integer("decoder_num_attention_heads", config.decoder_num_attention_heads);
  config.decoder_attention_head_dim =
      fields.integer("decoder_attention_head_dim", config.decoder_attention_head_dim, 16, 256);
  config.decoder_num_register_tokens =
      fields.integer("decoder_num_register_tokens", config.decoder_num_register_tokens, 0);
  config.decoder_ffn_mult = fields.integer("decoder_ffn_mult", config.decoder_ffn_mult, 1, 64);
  config.decoder_rope_theta = fields.positive_number("decoder_rope_theta", config.decoder_rope_theta);
  config.decoder_rope_dim_ratio = fields.number("decoder_rope_dim_ratio", config.decoder_rope_dim_ratio, 0, 1);
  config.decoder_norm_eps = fields.number("decoder_norm_eps", config.decoder_norm_eps, 0, 1);
  config.clip_length = fields.integer("clip_length", config.clip_length, 1, 1024);
  config.token_drop = fields.integer("token_drop", config.token_drop, 1, 1024);
  check_levels(fields, config);
  check_decoder(fields, config);
  check_clips(fields, config);
  config.latents_mean = numbers_of_channels(fields, "latents_mean", -kLargestNumber, 0, config.latent_channels);
  config.latents_std = numbers_of_channels(fields, "latents_std", 1e-6, 1, config.latent_channels);
  return config;
}

}  // namespace sparsereel::models
