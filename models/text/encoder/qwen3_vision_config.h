// The config.json of Qwen3-VL's vision model (arXiv 2511.21631), as a plain struct. Field names are those of
// transformers. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sparsereel::models {

struct Qwen3VisionConfig {
  int64_t depth = 27;
  int64_t hidden_size = 1152;
  int64_t intermediate_size = 4304;
  int64_t num_heads = 16;
  int64_t patch_size = 16;
  int64_t spatial_merge_size = 2;  // edge, in patches, of a square that becomes one token
  int64_t temporal_patch_size = 2;
  int64_t out_hidden_size = 3584;                               // the language model's width
  int64_t num_position_embeddings = 2304;                       // a square number: positions of a grid
  std::vector<int64_t> deepstack_visual_indexes = {8, 16, 24};  // layers whose states the language model also gets

  // Ids in the language model's text: before a picture, for each token of the picture, and after the picture.
  int64_t vision_start_token = 151652, image_token = 151655, vision_end_token = 151653;

  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t patch_elements() const { return 3 * temporal_patch_size * patch_size * patch_size; }
  int64_t patches_a_token() const { return spatial_merge_size * spatial_merge_size; }
  /// Returns the edge of the grid of position embeddings.
  int64_t positions_edge() const;
};

/// Reads the object vision_config of a Qwen3-VL's config.json, and the ids of the picture tokens beside it. A missing
/// field takes the default of Qwen3VLVisionConfig. Throws Error naming `file` and the field, also if there is no
/// vision_config.
Qwen3VisionConfig parse_qwen3_vision_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
