// Parses the config of Open-Sora-Plan's transformer. Missing fields take the defaults of the reference's constructor;
// fields without a usable default are required.
#include "models/families/open_sora_plan/config.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

int64_t required(const ConfigFields& fields, const char* field) {
  const auto value = fields.optional_integer(field);
  if (!value) fields.fail(field, "is missing");
  return *value;
}

/// Throws Error for settings that only other versions than 1.2.0, or unpublished variants of 1.2.0, have.
void check_variant(const ConfigFields& fields, const OpenSoraPlanConfig& config) {
  fields.choice("norm_type", "layer_norm", {"ada_norm_single"});
  fields.choice("activation_fn", "geglu", {"gelu-approximate"});
  fields.choice("attention_type", "default", {"default"});
  fields.require_null("downsampler");
  if (!fields.boolean("use_rope", false)) fields.unsupported("use_rope", "false", "true, as version 1.2.0 has it");
  if (!fields.boolean("attention_bias", false)) fields.unsupported("attention_bias", "false", "true");
  if (fields.boolean("norm_elementwise_affine", true)) fields.unsupported("norm_elementwise_affine", "true", "false");
  for (const char* field : {"only_cross_attention", "double_self_attention"})
    if (fields.boolean(field, false)) fields.unsupported(field, "true", "false");
  if (const int64_t frames = required(fields, "patch_size_t"); frames != 1)
    fields.unsupported("patch_size_t", std::to_string(frames), "1");
  if (const int64_t cross = required(fields, "cross_attention_dim"); cross != config.width())
    fields.fail("cross_attention_dim", "is " + std::to_string(cross) +
                                           ", but num_attention_heads x attention_head_dim is " +
                                           std::to_string(config.width()));
}

/// Parses the sample size. A single number stands for both height and width.
void parse_sample(const ConfigFields& fields, const nlohmann::json& json, OpenSoraPlanConfig& config) {
  config.sample_frames = required(fields, "sample_size_t");
  const auto given = json.find("sample_size");
  const bool is_pair = given != json.end() && given->is_array();
  const std::vector<int64_t> size =
      is_pair ? fields.integers("sample_size", {}) : std::vector<int64_t>(2, required(fields, "sample_size"));
  if (size.size() != 2) fields.fail("sample_size", "has " + std::to_string(size.size()) + " entries, not 2");
  config.sample_height = size[0];
  config.sample_width = size[1];
}

/// Reads the interpolation scales. A missing scale is computed from the sample size, as in the reference.
void parse_scales(const ConfigFields& fields, const nlohmann::json& json, OpenSoraPlanConfig& config) {
  const int64_t frames = config.sample_frames, sixteens = (frames - 1) / 16 + 1;
  config.interpolation_scale_t = frames % 2 == 1 ? static_cast<double>(sixteens) : static_cast<double>(frames) / 16;
  config.interpolation_scale_h = static_cast<double>(config.sample_height) / 30;
  config.interpolation_scale_w = static_cast<double>(config.sample_width) / 40;
  for (const auto& [field, scale] : {std::pair{"interpolation_scale_t", &config.interpolation_scale_t},
                                     std::pair{"interpolation_scale_h", &config.interpolation_scale_h},
                                     std::pair{"interpolation_scale_w", &config.interpolation_scale_w}}) {
    const auto given = json.find(field);
    if (given != json.end() && !given->is_null()) *scale = fields.positive_number(field, 1);
  }
}

}  // namespace

OpenSoraPlanConfig parse_open_sora_plan_config(const nlohmann::json& json, const std::string& file) {
  constexpr int64_t kMostPatchSide = 64;
  const ConfigFields fields(json, file);
  fields.require_class("OpenSoraT2V");
  OpenSoraPlanConfig config;
  config.num_attention_heads = fields.integer("num_attention_heads", config.num_attention_heads);
  config.attention_head_dim = fields.integer("attention_head_dim", config.attention_head_dim, 16, 256);
  config.in_channels = required(fields, "in_channels");
  config.out_channels = fields.optional_integer("out_channels").value_or(config.in_channels);
  config.num_layers = fields.integer("num_layers", config.num_layers, 1, kMaxLayers);
  config.patch_size = required(fields, "patch_size");
  config.caption_channels = required(fields, "caption_channels");
  config.norm_eps = fields.number("norm_eps", config.norm_eps, 0, 1);
  if (config.patch_size > kMostPatchSide) fields.fail("patch_size", "is above " + std::to_string(kMostPatchSide));
  if (config.out_channels != config.in_channels && config.out_channels != 2 * config.in_channels)
    fields.fail("out_channels", "is neither in_channels nor twice as many");
  fields.require_multiple("attention_head_dim (by pairs of three axes)", config.attention_head_dim, 6);
  fields.check_width("num_attention_heads x attention_head_dim", config.width());
  check_variant(fields, config);
  parse_sample(fields, json, config);
  parse_scales(fields, json, config);
  return config;
}

}  // namespace sparsereel::models
