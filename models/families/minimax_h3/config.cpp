// Parses the config of MiniMax-H3's transformer. Missing fields take the defaults of diffusers' constructor.
#include "models/families/minimax_h3/config.h"

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

std::array<int64_t, 3> parse_patch(const ConfigFields& fields) {
  const std::vector<int64_t> sizes = fields.integers("patch_size", {1, 2, 2});
  if (sizes.size() != 3) fields.fail("patch_size", "has " + std::to_string(sizes.size()) + " entries, not 3");
  if (sizes[0] != 1)
    fields.unsupported("patch_size", "of " + std::to_string(sizes[0]) + " frames", "patches of 1 frame");
  for (const int64_t size : sizes)
    if (size > 64) fields.fail("patch_size", "has the entry " + std::to_string(size) + ", which is more than 64");
  return {sizes[0], sizes[1], sizes[2]};
}

}  // namespace

MiniMaxH3Config parse_minimax_h3_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class("MiniMaxH3Transformer3DModel");
  MiniMaxH3Config config;
  config.num_attention_heads = fields.integer("num_attention_heads", config.num_attention_heads);
  config.attention_head_dim = fields.integer("attention_head_dim", config.attention_head_dim, 16, 256);
  config.hidden_size = fields.integer("hidden_size", config.hidden_size);
  config.num_layers = fields.integer("num_layers", config.num_layers, 1, kMaxLayers);
  config.num_refiner_layers = fields.integer("num_refiner_layers", config.num_refiner_layers, 0, kMaxLayers);
  config.ffn_dim = fields.integer("ffn_dim", config.ffn_dim);
  config.in_channels = fields.integer("in_channels", config.in_channels);
  config.audio_in_channels = fields.integer("audio_in_channels", config.audio_in_channels);
  config.patch_size = parse_patch(fields);
  config.text_dim = fields.integer("text_dim", config.text_dim);
  config.freq_dim = fields.integer("freq_dim", config.freq_dim, 2);
  config.time_embed_hidden_dim = fields.integer("time_embed_hidden_dim", config.time_embed_hidden_dim);
  config.time_embed_dim = fields.integer("time_embed_dim", config.time_embed_dim);
  config.rope_freq_dim = fields.integer("rope_freq_dim", config.rope_freq_dim);
  config.rope_theta = fields.positive_number("rope_theta", config.rope_theta);
  config.norm_eps = fields.number("norm_eps", config.norm_eps, 0, 1);
  config.qk_norm_eps = fields.number("qk_norm_eps", config.qk_norm_eps, 0, 1);
  config.final_norm_eps = fields.number("final_norm_eps", config.final_norm_eps, 0, 1);
  fields.check_width("num_attention_heads x attention_head_dim", config.heads_width());
  fields.require_multiple("attention_head_dim", config.attention_head_dim, 2);
  if (const int64_t rotated = 6 * config.rope_freq_dim; rotated > config.attention_head_dim)
    fields.fail("rope_freq_dim", "makes rotary embeddings rotate " + std::to_string(rotated) +
                                     " channels of a head, but attention_head_dim is " +
                                     std::to_string(config.attention_head_dim));
  return config;
}

}  // namespace sparsereel::models
