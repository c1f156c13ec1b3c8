// Parses the config of Wan's transformer, and refuses what is not supported.
#include "models/families/wan/config.h"

#include "hilbert/error.h"
#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

std::array<int64_t, 3> parse_patch(const ConfigFields& fields) {
  const std::vector<int64_t> sizes = fields.integers("patch_size", {1, 2, 2});
  if (sizes.size() != 3) fields.fail("patch_size", "has " + std::to_string(sizes.size()) + " entries, not 3");
  return {sizes[0], sizes[1], sizes[2]};
}

/// Reads the fields for attention to images. A model has either all of them or none.
void parse_images(const ConfigFields& fields, const std::string& file, WanConfig& config) {
  config.image_dim = fields.optional_integer("image_dim");
  // Some copies of the 2.2 5B model give these fields, which belong to other models, but do not have the weights.
  if (config.image_dim && config.in_channels == config.out_channels)
    throw bad_file(file,
                   "image_dim is " + std::to_string(*config.image_dim) + ", but in_channels has only the " +
                       std::to_string(config.in_channels) +
                       " channels of the noise: a model that attends to images also takes their latents",
                   "set image_dim and added_kv_proj_dim to null, as in the authors' file");
  config.pos_embed_seq_len = fields.optional_integer("pos_embed_seq_len");
  const std::optional<int64_t> added = fields.optional_integer("added_kv_proj_dim");
  if (added.has_value() != config.image_dim.has_value())
    fields.fail("added_kv_proj_dim", added ? "is given, but not image_dim" : "is missing, but image_dim is given");
  if (added && *added != config.width())
    fields.fail("added_kv_proj_dim", "is " + std::to_string(*added) +
                                         ", but num_attention_heads x attention_head_dim " +
                                         std::to_string(config.width()));
  if (config.pos_embed_seq_len && !config.image_dim) fields.fail("pos_embed_seq_len", "is given, but not image_dim");
}

}  // namespace

WanConfig parse_wan_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class("WanTransformer3DModel");
  fields.choice("qk_norm", "rms_norm_across_heads", {"rms_norm_across_heads"});
  WanConfig config;
  config.patch_size = parse_patch(fields);
  config.num_attention_heads = fields.integer("num_attention_heads", 40);
  config.attention_head_dim = fields.integer("attention_head_dim", 128, 16, 256);
  config.in_channels = fields.integer("in_channels", 16);
  config.out_channels = fields.optional_integer("out_channels").value_or(config.in_channels);
  config.text_dim = fields.integer("text_dim", 4096);
  config.freq_dim = fields.integer("freq_dim", 256, 2);
  config.ffn_dim = fields.integer("ffn_dim", 13824);
  config.num_layers = fields.integer("num_layers", 40, 1, 1000);
  config.cross_attn_norm = fields.boolean("cross_attn_norm", true);
  config.eps = fields.number("eps", 1e-6, 0, 1);
  config.rope_max_seq_len = fields.integer("rope_max_seq_len", 1024);
  parse_images(fields, file, config);
  if (config.attention_head_dim % 2 != 0)
    fields.fail("attention_head_dim", "is odd, but must be even, because rotary embeddings rotate pairs of channels");
  return config;
}

}  // namespace sparsereel::models
