// Parses the config of Open-Sora-Plan's VAE. Missing fields take the defaults of the reference's constructor.
#include "models/families/open_sora_plan/vae_config.h"

#include <algorithm>

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

using Upsampling = OpenSoraPlanVaeConfig::Upsampling;

/// Returns the field's entries, one for each level. Throws Error for another number of entries.
std::vector<std::string> of_levels(const ConfigFields& fields, const char* field,
                                   const std::vector<std::string>& fallback, size_t levels) {
  std::vector<std::string> names = fields.strings(field, fallback);
  if (names.size() != levels)
    fields.fail(field,
                "has " + std::to_string(names.size()) + " entries, but hidden_size_mult has " + std::to_string(levels));
  return names;
}

std::vector<Upsampling> parse_upsampling(const ConfigFields& fields, size_t levels) {
  constexpr const char *kField = "decoder_spatial_upsample", *kPixels = "SpatialUpsample2x",
                       *kBoth = "Spatial2xTime2x3DUpsample";
  std::vector<Upsampling> upsampling;
  for (const std::string& name : of_levels(fields, kField, {"", kPixels, kPixels, kPixels}, levels)) {
    if (!name.empty() && name != kPixels && name != kBoth)
      fields.unsupported(kField, "with " + name, std::string(kPixels) + " or " + kBoth);
    upsampling.push_back(name.empty()      ? Upsampling::none
                         : name == kPixels ? Upsampling::pixels
                                           : Upsampling::pixels_and_frames);
  }
  return upsampling;
}

std::vector<bool> parse_doubling(const ConfigFields& fields, size_t levels) {
  constexpr const char *kField = "decoder_temporal_upsample", *kTwice = "TimeUpsample2x";
  std::vector<bool> doubling;
  for (const std::string& name : of_levels(fields, kField, {"", "", kTwice, kTwice}, levels)) {
    if (!name.empty() && name != kTwice) fields.unsupported(kField, "with " + name, kTwice);
    doubling.push_back(!name.empty());
  }
  return doubling;
}

void check_layers(const ConfigFields& fields, size_t levels) {
  constexpr const char *kBlocks = "decoder_resnet_blocks", *kBlock = "ResnetBlock3D";
  for (const std::string& name : of_levels(fields, kBlocks, std::vector<std::string>(levels, kBlock), levels))
    if (name != kBlock) fields.unsupported(kBlocks, "with " + name, kBlock);
  for (const char* field : {"decoder_conv_in", "decoder_conv_out", "q_conv"})
    fields.choice(field, "CausalConv3d", {"CausalConv3d"});
  fields.choice("decoder_mid_resnet", kBlock, {kBlock});
  fields.choice("decoder_attention", "AttnBlock3D", {"AttnBlock3DFix"});
  if (!fields.integers("attn_resolutions", {}).empty())
    fields.unsupported("attn_resolutions", "with entries", "attention in the middle only");
}

}  // namespace

int64_t OpenSoraPlanVaeConfig::pixels_a_latent() const {
  return int64_t{1} << (std::ssize(upsampling) - std::ranges::count(upsampling, Upsampling::none));
}

int64_t OpenSoraPlanVaeConfig::frames_a_latent() const {
  return int64_t{1} << (std::ranges::count(upsampling, Upsampling::pixels_and_frames) +
                        std::ranges::count(doubles_frames, true));
}

OpenSoraPlanVaeConfig parse_open_sora_plan_vae_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class("CausalVAEModel");
  OpenSoraPlanVaeConfig config;
  config.hidden_size = fields.integer("hidden_size", config.hidden_size);
  config.z_channels = fields.integer("z_channels", config.z_channels);
  config.embed_dim = fields.integer("embed_dim", config.embed_dim);
  config.num_res_blocks = fields.integer("num_res_blocks", config.num_res_blocks, 0, kMaxLayers);
  config.hidden_size_mult = fields.integers("hidden_size_mult", config.hidden_size_mult);
  config.use_quant_layer = fields.boolean("use_quant_layer", true);
  config.scaling_factor = fields.positive_number("scaling_factor", config.scaling_factor);
  const size_t levels = config.hidden_size_mult.size();
  if (levels == 0 || levels > 8)
    fields.fail("hidden_size_mult", "has " + std::to_string(levels) + " entries, not 1 to 8");
  fields.require_multiple("hidden_size (by the norms' groups)", config.hidden_size, OpenSoraPlanVaeConfig::kNormGroups);
  if (!config.use_quant_layer && config.z_channels != config.embed_dim)
    fields.fail("embed_dim", "differs from z_channels although use_quant_layer is false");
  config.upsampling = parse_upsampling(fields, levels);
  config.doubles_frames = parse_doubling(fields, levels);
  check_layers(fields, levels);
  return config;
}

}  // namespace sparsereel::models
