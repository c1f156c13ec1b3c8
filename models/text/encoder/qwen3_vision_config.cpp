// Parses the fields.
#include "models/text/encoder/qwen3_vision_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/files/config_fields.h"

namespace sparsereel::models {

int64_t Qwen3VisionConfig::positions_edge() const {
  return static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(num_position_embeddings))));
}

Qwen3VisionConfig parse_qwen3_vision_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields whole(json, file);
  const auto found = json.find("vision_config");
  if (found == json.end()) whole.fail("vision_config", "is missing, but a picture is given");
  const std::string place = file + ": vision_config";
  const ConfigFields fields(*found, place);
  fields.choice("hidden_act", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"});
  fields.integer("in_channels", 3, 3, 3);
  Qwen3VisionConfig config;
  config.depth = fields.integer("depth", config.depth, 1, kMaxLayers);
  config.hidden_size = fields.integer("hidden_size", config.hidden_size);
  config.intermediate_size = fields.integer("intermediate_size", config.intermediate_size);
  config.num_heads = fields.integer("num_heads", config.num_heads);
  config.patch_size = fields.integer("patch_size", config.patch_size, 1, 256);
  config.spatial_merge_size = fields.integer("spatial_merge_size", config.spatial_merge_size, 1, 16);
  config.temporal_patch_size = fields.integer("temporal_patch_size", config.temporal_patch_size, 1, 16);
  config.out_hidden_size = fields.integer("out_hidden_size", config.out_hidden_size);
  config.num_position_embeddings = fields.integer("num_position_embeddings", config.num_position_embeddings);
  config.deepstack_visual_indexes = fields.integers("deepstack_visual_indexes", config.deepstack_visual_indexes, 0);
  config.vision_start_token = whole.integer("vision_start_token_id", config.vision_start_token, 0);
  config.image_token = whole.integer("image_token_id", config.image_token, 0);
  config.vision_end_token = whole.integer("vision_end_token_id", config.vision_end_token, 0);
  // The rotary embedding rotates pairs of a head's channels: half of the pairs by the row, and half by the column. So
  // the number of channels must be a multiple of 4.
  fields.require_multiple("hidden_size (by 4 num_heads)", config.hidden_size, 4 * config.num_heads);
  if (config.positions_edge() * config.positions_edge() != config.num_position_embeddings)
    fields.fail("num_position_embeddings",
                "is " + std::to_string(config.num_position_embeddings) + ", which is no square number");
  for (const int64_t layer : config.deepstack_visual_indexes)
    if (layer >= config.depth)
      fields.fail("deepstack_visual_indexes", "has the entry " + std::to_string(layer) + ", but there are " +
                                                  std::to_string(config.depth) + " layers");
  if (!std::ranges::is_sorted(config.deepstack_visual_indexes))
    fields.unsupported("deepstack_visual_indexes", "in another order", "ascending layers");
  return config;
}

}  // namespace sparsereel::models
