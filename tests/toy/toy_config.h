// The configs of the toy family, a small model that only tests use. Published families have properties in common on
// which general code might rely by mistake; the toy family lacks them. make_checkpoint.py makes its checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "models/files/config_fields.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::test {

/// The fields of the transformer's config.json.
struct ToyConfig {
  int64_t layers = 3, heads = 2, head_dim = 16, channels = 4, text_dim = 8, text_width = 12;
  std::array<int64_t, 3> patch{1, 1, 1};

  int64_t width() const { return heads * head_dim; }
};

inline ToyConfig parse_toy_config(const nlohmann::json& json, const std::string& file) {
  const models::ConfigFields fields(json, file);
  fields.require_class("ToyTransformer3DModel");
  ToyConfig config;
  config.layers = fields.integer("num_layers", config.layers, 1, models::kMaxLayers);
  config.heads = fields.integer("num_attention_heads", config.heads);
  config.head_dim = fields.integer("attention_head_dim", config.head_dim);
  config.channels = fields.integer("in_channels", config.channels);
  config.text_dim = fields.integer("text_dim", config.text_dim);
  config.text_width = fields.integer("text_width", config.text_width);
  const std::vector<int64_t> patch = fields.integers("patch_size", {1, 1, 1});
  if (patch.size() != 3) fields.fail("patch_size", "does not have three entries");
  config.patch = {patch[0], patch[1], patch[2]};
  return config;
}

/// The fields of the VAE's config.json.
struct ToyVaeConfig {
  int64_t channels = 4;
  std::array<int64_t, 3> stride{2, 4, 4};  // frames, height, width
};

inline ToyVaeConfig parse_toy_vae_config(const nlohmann::json& json, const std::string& file) {
  const models::ConfigFields fields(json, file);
  fields.require_class("AutoencoderKLToy");
  ToyVaeConfig config;
  config.channels = fields.integer("latent_channels", config.channels);
  const std::vector<int64_t> stride = fields.integers("stride", {2, 4, 4});
  if (stride.size() != 3) fields.fail("stride", "does not have three entries");
  config.stride = {stride[0], stride[1], stride[2]};
  return config;
}

models::Family toy_family();

}  // namespace sparsereel::test
