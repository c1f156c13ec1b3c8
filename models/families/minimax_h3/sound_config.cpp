// Parses the config of MiniMax-H3's autoencoder of sound. Missing fields take the defaults of diffusers' constructor.
#include "models/families/minimax_h3/sound_config.h"

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

constexpr double kMostOfLatents = 1e6;
constexpr int64_t kMostStages = 16, kMostRate = 64, kMostKernel = 1024;

/// Returns the product of rates up to kMostRate, or any number above kMaxSize if the product is above it.
int64_t all_rates(const std::vector<int64_t>& rates) {
  int64_t all = 1;
  for (const int64_t rate : rates)
    if (all <= kMaxSize) all *= rate;
  return all;
}

void check_entries(const ConfigFields& fields, const char* field, const std::vector<int64_t>& entries, int64_t most) {
  for (const int64_t entry : entries)
    if (entry > most)
      fields.fail(field, "has the entry " + std::to_string(entry) + ", which is more than " + std::to_string(most));
}

std::vector<double> latent_numbers(const ConfigFields& fields, const char* field, double least, double fallback,
                                   int64_t channels) {
  std::vector<double> numbers = fields.optional_numbers(field, least, kMostOfLatents);
  if (numbers.empty()) numbers.assign(static_cast<size_t>(channels), fallback);
  if (std::ssize(numbers) != channels)
    fields.fail(field, "has " + std::to_string(numbers.size()) + " entries, but latent_channels is " +
                           std::to_string(channels));
  return numbers;
}

std::vector<std::vector<int64_t>> parse_dilations(const ConfigFields& fields, const nlohmann::json& json,
                                                  const std::string& file, size_t kernels) {
  constexpr const char* kField = "resblock_dilation_sizes";
  const std::vector<int64_t> usual = {1, 3, 5};
  const auto found = json.find(kField);
  if (found == json.end()) return std::vector<std::vector<int64_t>>(kernels, usual);
  if (!found->is_array() || found->size() != kernels)
    fields.fail(kField, "is " + found->dump() + ", but must have a list for each entry of resblock_kernel_sizes");
  std::vector<std::vector<int64_t>> dilations;
  for (const nlohmann::json& entry : *found) {
    const nlohmann::json alone = {{kField, entry}};
    dilations.push_back(ConfigFields(alone, file).integers(kField, usual));
    if (dilations.back().empty()) fields.fail(kField, "has an empty list");
    check_entries(fields, kField, dilations.back(), kMostKernel);
  }
  return dilations;
}

void check_stages(const ConfigFields& fields, const MiniMaxH3SoundConfig& config) {
  const std::vector<int64_t>&rates = config.decoder_rates, &kernels = config.decoder_kernel_sizes;
  if (rates.empty() || std::ssize(rates) > kMostStages)
    fields.fail("decoder_rates",
                "has " + std::to_string(rates.size()) + " entries, not 1 to " + std::to_string(kMostStages));
  check_entries(fields, "decoder_rates", rates, kMostRate);
  check_entries(fields, "decoder_kernel_sizes", kernels, kMostKernel);
  if (kernels.size() != rates.size())
    fields.fail("decoder_kernel_sizes", "has " + std::to_string(kernels.size()) + " entries, but decoder_rates has " +
                                            std::to_string(rates.size()));
  for (size_t i = 0; i < rates.size(); ++i)
    if (kernels[i] < rates[i] || (kernels[i] - rates[i]) % 2 != 0)
      fields.fail("decoder_kernel_sizes", "has the entry " + std::to_string(kernels[i]) +
                                              ", but must exceed the rate " + std::to_string(rates[i]) +
                                              " by an even number");
  fields.require_multiple("decoder_dim (by 2 for each entry of decoder_rates)", config.decoder_dim,
                          int64_t{1} << rates.size());
  if (config.samples_a_latent() > kMaxSize)
    fields.fail("decoder_rates", "multiplies to more than " + std::to_string(kMaxSize));
}

}  // namespace

int64_t MiniMaxH3SoundConfig::samples_a_latent() const {
  return all_rates(decoder_rates);
}

MiniMaxH3SoundConfig parse_minimax_h3_sound_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class("AutoencoderKLMiniMaxH3Audio");
  MiniMaxH3SoundConfig config;
  config.latent_dim = fields.integer("latent_dim", config.latent_dim);
  config.latent_channels = fields.integer("latent_channels", config.latent_channels);
  config.decoder_dim = fields.integer("decoder_dim", config.decoder_dim);
  config.decoder_rates = fields.integers("decoder_rates", config.decoder_rates);
  config.decoder_kernel_sizes = fields.integers("decoder_kernel_sizes", config.decoder_kernel_sizes);
  config.resblock_kernel_sizes = fields.integers("resblock_kernel_sizes", config.resblock_kernel_sizes);
  config.sampling_rate = fields.integer("sampling_rate", config.sampling_rate);
  check_stages(fields, config);
  const std::vector<int64_t> encoder_rates = fields.integers("encoder_rates", {2, 4, 4, 5, 5});
  check_entries(fields, "encoder_rates", encoder_rates, kMostRate);
  if (std::ssize(encoder_rates) > kMostStages || all_rates(encoder_rates) != config.samples_a_latent())
    fields.fail("encoder_rates", "multiplies to another number of samples than decoder_rates, " +
                                     std::to_string(config.samples_a_latent()));
  if (config.resblock_kernel_sizes.empty()) fields.fail("resblock_kernel_sizes", "is empty");
  check_entries(fields, "resblock_kernel_sizes", config.resblock_kernel_sizes, kMostKernel);
  for (const int64_t kernel : config.resblock_kernel_sizes)
    if (kernel % 2 == 0)
      fields.fail("resblock_kernel_sizes", "has the entry " + std::to_string(kernel) + ", but entries must be odd");
  config.resblock_dilation_sizes = parse_dilations(fields, json, file, config.resblock_kernel_sizes.size());
  config.latents_mean = latent_numbers(fields, "latents_mean", -kMostOfLatents, 0, config.latent_channels);
  config.latents_std = latent_numbers(fields, "latents_std", 1e-6, 1, config.latent_channels);
  return config;
}

}  // namespace sparsereel::models
