// Parses the config of Mochi's VAE. Missing fields take the defaults of diffusers' constructor.
#include "models/families/mochi/vae_config.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

constexpr double kLargestLatent = 1e6;

int64_t product(const std::vector<int64_t>& factors) {
  return std::accumulate(factors.begin(), factors.end(), int64_t{1}, std::multiplies<>());
}

/// Returns one number for each channel of the latents: the field's, or `fallback` if the field is missing. Returns an
/// empty vector if the field is null.
std::vector<double> latent_statistics(const nlohmann::json& json, const ConfigFields& fields, const char* field,
                                      double least, int64_t channels, const std::vector<double>& fallback) {
  const auto given = json.find(field);
  if (given != json.end() && given->is_null()) return {};
  std::vector<double> numbers = given == json.end() ? fallback : fields.optional_numbers(field, least, kLargestLatent);
  if (numbers.size() != static_cast<size_t>(channels))
    fields.fail(field, "has " + std::to_string(numbers.size()) + " entries, but latent_channels is " +
                           std::to_string(channels));
  return numbers;
}

void require_entries(const ConfigFields& fields, const char* field, size_t entries, size_t wanted) {
  if (entries == wanted) return;
  fields.fail(field, "has " + std::to_string(entries) + " entries, but decoder_block_out_channels requires " +
                         std::to_string(wanted));
}

void check_mochi_levels(const ConfigFields& fields, const MochiVaeConfig& config) {
  constexpr int64_t kMostExpansion = 64;
  const size_t levels = config.block_out_channels.size();
  if (levels == 0 || levels > 8)
    fields.fail("decoder_block_out_channels", "has " + std::to_string(levels) + " entries, not 1 to 8");
  for (const int64_t channels : config.block_out_channels)
    fields.require_multiple("decoder_block_out_channels (by the norms' groups)", channels, MochiVaeConfig::kNormGroups);
  require_entries(fields, "layers_per_block", config.layers_per_block.size(), levels + 1);
  require_entries(fields, "temporal_expansions", config.temporal_expansions.size(), levels - 1);
  require_entries(fields, "spatial_expansions", config.spatial_expansions.size(), levels - 1);
  if (product(config.temporal_expansions) > kMostExpansion || product(config.spatial_expansions) > kMostExpansion)
    fields.fail("temporal_expansions or spatial_expansions", "multiply to more than " + std::to_string(kMostExpansion));
}

}  // namespace

int64_t MochiVaeConfig::pixels_a_latent() const {
  return product(spatial_expansions);
}

int64_t MochiVaeConfig::frames_a_latent() const {
  return product(temporal_expansions);
}

MochiVaeConfig parse_mochi_vae_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class("AutoencoderKLMochi");
  fields.choice("act_fn", "silu", {"silu", "swish"});
  MochiVaeConfig config;
  config.out_channels = fields.integer("out_channels", config.out_channels);
  config.block_out_channels = fields.integers("decoder_block_out_channels", config.block_out_channels);
  config.latent_channels = fields.integer("latent_channels", config.latent_channels);
  config.layers_per_block = fields.integers("layers_per_block", config.layers_per_block, 0);
  config.temporal_expansions = fields.integers("temporal_expansions", config.temporal_expansions);
  config.spatial_expansions = fields.integers("spatial_expansions", config.spatial_expansions);
  config.latents_mean =
      latent_statistics(json, fields, "latents_mean", -kLargestLatent, config.latent_channels,
                        {-0.06730895953510081, -0.038011381506090416, -0.07477820912866141, -0.05565264470995561,
                         0.012767231469026969, -0.04703542746246419, 0.043896967884726704, -0.09346305707025976,
                         -0.09918314763016893, -0.008729793427399178, -0.011931556316503654, -0.0321993391887285});
  config.latents_std =
      latent_statistics(json, fields, "latents_std", 1e-6, config.latent_channels,
                        {0.9263795028493863, 0.9248894543193766, 0.9393059390890617, 0.959253732819592,
                         0.8244560132752793, 0.917259975397747, 0.9294154431013696, 1.3720942357788521,
                         0.881393668867029, 0.9168315692124348, 0.9185249279345552, 0.9274757570805041});
  config.scaling_factor = fields.positive_number("scaling_factor", config.scaling_factor);
  check_mochi_levels(fields, config);
  return config;
}

}  // namespace sparsereel::models
