// The config.json of Mochi's transformer. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

/// The config of diffusers' MochiTransformer3DModel.
struct MochiConfig {
  static constexpr int64_t kPoolerHeads = 8;  // fixed by the reference

  int64_t patch_size = 2;  // height and width of a patch, in latents
  int64_t num_attention_heads = 24;
  int64_t attention_head_dim = 128;
  int64_t num_layers = 48;
  int64_t pooled_projection_dim = 1536;  // width of the text stream
  int64_t in_channels = 12;
  int64_t out_channels = 12;
  int64_t text_embed_dim = 4096;
  int64_t time_embed_dim = 256;
  int64_t max_sequence_length = 256;

  int64_t width() const { return num_attention_heads * attention_head_dim; }
  /// Returns the inner width of the gated feed-forward of a stream of this width.
  static int64_t feed_forward_width(int64_t width) { return 8 * width / 3; }
};

/// Parses the config. Throws Error naming `file` and the field.
MochiConfig parse_mochi_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
