// Parses the config of Wan's VAE. Missing fields take the defaults of diffusers' constructor.
#include "models/families/wan/vae_config.h"

#include <algorithm>

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

constexpr double kLargestStatistic = 1e6;

// Reads one number for each channel of the latents. A missing field gives `fallback`.
std::vector<double> statistics(const ConfigFields& fields, const char* field, double least, int64_t channels,
                               std::vector<double> fallback) {
  std::vector<double> numbers = fields.optional_numbers(field, least, kLargestStatistic);
  if (numbers.empty()) numbers = std::move(fallback);
  if (numbers.size() != static_cast<size_t>(channels))
    fields.fail(field, "has " + std::to_string(numbers.size()) + " entries, but z_dim is " + std::to_string(channels));
  return numbers;
}

void check_levels(const ConfigFields& fields, const WanVaeConfig& config) {
  const size_t levels = config.dim_mult.size(), doublings = config.temperal_downsample.size();
  if (levels == 0 || levels > 8) fields.fail("dim_mult", "has " + std::to_string(levels) + " entries, not 1 to 8");
  if (doublings != levels - 1)
    fields.fail("temperal_downsample", "has " + std::to_string(doublings) + " entries, but dim_mult has " +
                                           std::to_string(levels) + ", which requires " + std::to_string(levels - 1));
  for (const WanVaeLevel& level : decoder_levels(config)) {
    fields.check_width("decoder_base_dim x dim_mult", level.out);
    if (level.resized == 0) continue;
    if (!config.is_residual) fields.require_multiple("decoder_base_dim x dim_mult", level.out, 2);
    const int64_t made = level.out * (level.resizes_time ? 8 : 4);
    if (config.is_residual && made % level.in != 0)
      fields.fail("dim_mult", "makes a shortcut repeat " + std::to_string(level.in) + " channels to " +
                                  std::to_string(made) + ", which is not a multiple of them");
  }
}

void check_encoder(const ConfigFields& fields, const WanVaeConfig& config) {
  if (!fields.optional_numbers("attn_scales", 0, 1).empty())
    fields.unsupported("attn_scales", "with entries, in an encoder", "none");
  const int64_t colors = 3 * config.patch_size * config.patch_size;
  if (config.in_channels != colors)
    fields.fail("in_channels", "is " + std::to_string(config.in_channels) +
                                   ", but three colors times patch_size squared are " + std::to_string(colors));
  for (const WanVaeLevel& level : encoder_levels(config)) {
    fields.check_width("base_dim x dim_mult", level.out);
    const int64_t places = level.resized == 0 ? 1 : level.resizes_time ? 8 : 4;
    if (config.is_residual && level.in * places % level.out != 0)
      fields.fail("dim_mult", "makes a shortcut average " + std::to_string(level.in * places) + " channels to " +
                                  std::to_string(level.out) + ", which does not divide them");
  }
}

// Throws Error unless the field has the value `scale`, which follows from other fields (`others`).
void check_scale(const ConfigFields& fields, const char* field, int64_t fallback, int64_t scale, const char* others) {
  const int64_t stated = fields.integer(field, fallback);
  if (stated != scale)
    fields.fail(field,
                "is " + std::to_string(stated) + ", but must be " + std::to_string(scale) + " because of " + others);
}

}  // namespace

int64_t WanVaeConfig::frames_a_latent() const {
  return int64_t{1} << std::count(temperal_downsample.begin(), temperal_downsample.end(), true);
}

std::vector<WanVaeLevel> encoder_levels(const WanVaeConfig& config) {
  const size_t count = config.dim_mult.size();
  std::vector<WanVaeLevel> levels;
  int64_t in = config.base_dim;
  for (size_t i = 0; i < count; ++i) {
    const int64_t out = config.base_dim * config.dim_mult[i];
    const bool last = i + 1 == count;
    levels.push_back(
        {.in = in, .out = out, .resized = last ? 0 : out, .resizes_time = !last && config.temperal_downsample[i]});
    in = out;
  }
  return levels;
}

std::vector<WanVaeLevel> decoder_levels(const WanVaeConfig& config) {
  const size_t count = config.dim_mult.size();
  std::vector<WanVaeLevel> levels;
  int64_t in = config.decoder_base_dim * config.dim_mult.back();
  for (size_t i = count; i-- > 0;) {
    const int64_t out = config.decoder_base_dim * config.dim_mult[i];
    levels.push_back({.in = in, .out = out});
    if (i == 0) break;
    levels.back().resized = in = config.is_residual ? out : out / 2;
    levels.back().resizes_time = config.temperal_downsample[i - 1];
  }
  return levels;
}

WanVaeConfig parse_wan_vae_config(const nlohmann::json& json, const std::string& file, bool with_encoder) {
  const ConfigFields fields(json, file);
  fields.require_class("AutoencoderKLWan");
  WanVaeConfig config;
  config.base_dim = fields.integer("base_dim", 96);
  config.decoder_base_dim = fields.optional_integer("decoder_base_dim").value_or(config.base_dim);
  config.z_dim = fields.integer("z_dim", 16);
  config.dim_mult = fields.integers("dim_mult", {1, 2, 4, 4});
  config.num_res_blocks = fields.integer("num_res_blocks", 2, 1, kMaxLayers);
  config.temperal_downsample = fields.booleans("temperal_downsample", {false, true, true});
  config.latents_mean = statistics(fields, "latents_mean", -kLargestStatistic, config.z_dim,
                                   {-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134,
                                    -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921});
  config.latents_std = statistics(fields, "latents_std", 1e-6, config.z_dim,
                                  {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526,
                                   2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160});
  config.is_residual = fields.boolean("is_residual", false);
  config.in_channels = fields.integer("in_channels", 3);
  config.out_channels = fields.integer("out_channels", 3);
  config.patch_size = fields.optional_integer("patch_size", 1, 64).value_or(1);
  check_levels(fields, config);
  fields.require_multiple("out_channels (by patch_size squared)", config.out_channels,
                          config.patch_size * config.patch_size);
  if (with_encoder) check_encoder(fields, config);
  check_scale(fields, "scale_factor_spatial", 8, config.pixels_a_latent(), "dim_mult and patch_size");
  check_scale(fields, "scale_factor_temporal", 4, config.frames_a_latent(), "temperal_downsample");
  return config;
}

}  // namespace sparsereel::models
