// Parses CLIP's config. Missing fields have the defaults of transformers.CLIPVisionConfig.
#include "models/image/clip_config.h"

#include "models/files/config_fields.h"

namespace sparsereel::models {

ClipVisionConfig parse_clip_vision_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.choice("model_type", "clip_vision_model", {"clip_vision_model"});
  fields.choice("hidden_act", "quick_gelu", {"gelu"});
  ClipVisionConfig config;
  config.hidden_size = fields.integer("hidden_size", 768);
  config.intermediate_size = fields.integer("intermediate_size", 3072);
  // At least 2, because the last layer is not used and another one must remain.
  config.num_hidden_layers = fields.integer("num_hidden_layers", 12, 2, kMaxLayers);
  config.num_attention_heads = fields.integer("num_attention_heads", 12);
  config.num_channels = fields.integer("num_channels", 3, 3, 3);
  config.image_size = fields.integer("image_size", 224, 1, 4096);
  config.patch_size = fields.integer("patch_size", 32);
  config.layer_norm_eps = fields.number("layer_norm_eps", 1e-5, 0, 1);
  fields.require_multiple("hidden_size (by num_attention_heads)", config.hidden_size, config.num_attention_heads);
  fields.require_multiple("image_size (by patch_size)", config.image_size, config.patch_size);
  return config;
}

}  // namespace sparsereel::models
