// Parses the config of Mochi's transformer. Missing fields take the defaults of diffusers' constructor.
#include "models/families/mochi/config.h"

#include "models/files/config_fields.h"

namespace sparsereel::models {

MochiConfig parse_mochi_config(const nlohmann::json& json, const std::string& file) {
  constexpr int64_t kMostPatchSide = 64;
  const ConfigFields fields(json, file);
  fields.require_class("MochiTransformer3DModel");
  fields.choice("qk_norm", "rms_norm", {"rms_norm"});
  fields.choice("activation_fn", "swiglu", {"swiglu"});
  MochiConfig config;
  config.patch_size = fields.integer("patch_size", config.patch_size, 1, kMostPatchSide);
  config.num_attention_heads = fields.integer("num_attention_heads", config.num_attention_heads);
  config.attention_head_dim = fields.integer("attention_head_dim", config.attention_head_dim, 16, 256);
  config.num_layers = fields.integer("num_layers", config.num_layers, 1, kMaxLayers);
  config.pooled_projection_dim = fields.integer("pooled_projection_dim", config.pooled_projection_dim);
  config.in_channels = fields.integer("in_channels", config.in_channels);
  config.out_channels = fields.optional_integer("out_channels").value_or(config.in_channels);
  config.text_embed_dim = fields.integer("text_embed_dim", config.text_embed_dim);
  config.time_embed_dim = fields.integer("time_embed_dim", config.time_embed_dim, 2);
  config.max_sequence_length = fields.integer("max_sequence_length", config.max_sequence_length);
  if (config.attention_head_dim % 2 != 0)
    fields.fail("attention_head_dim", "is odd, but must be even, because rotary embeddings rotate pairs of channels");
  fields.check_width("num_attention_heads x attention_head_dim", config.width());
  fields.require_multiple("text_embed_dim (by the pooler's heads)", config.text_embed_dim, MochiConfig::kPoolerHeads);
  return config;
}

}  // namespace sparsereel::models
