// Computes CogVideoX's position tables.
#include "models/families/cogvideox/tokens.h"

#include <ATen/ATen.h>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

hilbert::Grid sample_grid(const CogVideoXConfig& config) {
  return {(config.sample_frames - 1) / config.temporal_compression_ratio + 1, config.sample_height / config.patch_size,
          config.sample_width / config.patch_size};
}

std::string size_text(const hilbert::Grid& grid) {
  return std::to_string(grid.frames) + " x " + std::to_string(grid.height) + " x " + std::to_string(grid.width);
}

AxisChannels rotary_channels(const CogVideoXConfig& config) {
  const int64_t eighth = config.attention_head_dim / 8;
  return {2 * eighth, 3 * eighth, 3 * eighth};
}

RotaryTable rotary(const CogVideoXConfig& config, const std::string& config_file, const hilbert::Grid& grid) {
  const hilbert::Grid sample = sample_grid(config);
  if (!config.patch_size_t)
    return rotary_positions_3d(rotary_channels(config), cropped_axis_positions(grid, sample.height, sample.width));
  if (grid.height > sample.height || grid.width > sample.width) {
    throw bad_input(config_file + ": a video of " + std::to_string(grid.height) + " x " + std::to_string(grid.width) +
                        " patches exceeds sample_height and sample_width (" + std::to_string(sample.height) + " x " +
                        std::to_string(sample.width) + " patches)",
                    "ask for a smaller width and height");
  }
  return rotary_positions_3d(rotary_channels(config), plain_axis_positions(grid, at::kFloat));
}

// Adds positions to the tables, in native token order. Learned positions, [text_len + video tokens, C], fit only the
// grid of the sample size. For other grids, the video's positions are computed, and the text's positions are zero.
void add_positions(TokenTables& tables, const CogVideoXConfig& config, const std::string& config_file,
                   const at::Tensor& learned, const hilbert::Grid& grid) {
  const hilbert::Grid sample = sample_grid(config);
  if (learned.defined() && (grid.height != sample.height || grid.width != sample.width)) {
    throw bad_input(config_file + ": use_learned_positional_embeddings fixes the size of the video: " +
                        size_text(sample) + " patches, not " + size_text(grid),
                    "ask for the checkpoint's own width and height");
  }
  if (learned.defined() && grid == sample) {
    tables.text_positions = learned[0].slice(0, 0, config.max_text_seq_length);
    tables.video_positions = learned[0].slice(0, config.max_text_seq_length);
  } else {
    tables.video_positions = sincos_positions_3d(config.width(), grid, config.spatial_interpolation_scale,
                                                 config.temporal_interpolation_scale);
  }
}

}  // namespace

TokenTables cogvideox_tables(const CogVideoXConfig& config, const std::string& config_file,
                             const at::Tensor& learned_positions, const hilbert::Grid& grid) {
  TokenTables tables;
  if (config.use_rotary_positional_embeddings) tables.rotary = rotary(config, config_file, grid);
  if (!config.use_rotary_positional_embeddings || learned_positions.defined())
    add_positions(tables, config, config_file, learned_positions, grid);
  return tables;
}

}  // namespace sparsereel::models
