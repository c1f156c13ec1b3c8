// Cuts pictures into the patches that a vision model reads.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/image/resample.h"
#include "models/request/patch_config.h"

namespace sparsereel::models {

/// The patches of a picture. A square of merge_size x merge_size patches becomes one token, so patches are ordered
/// square by square. Squares, and the patches of a square, are ordered row by row.
struct PicturePatches {
  at::Tensor pixels;  // fp32 [rows x columns, 3 x temporal_patch_size x patch_size^2], channel slowest, on the CPU
  int64_t rows = 0, columns = 0;  // number of rows and columns of patches

  /// Returns the number of tokens of the picture.
  int64_t tokens(const PatchConfig& config) const { return rows * columns / (config.merge_size * config.merge_size); }
};

/// Returns a picture's patches as transformers' Qwen2VLImageProcessor makes them with Pillow. The picture is resized to
/// patched_size() by the bicubic filter, normalized, and repeated for each frame of a patch. Throws Error as
/// patched_size() does.
PicturePatches picture_patches(const Picture& picture, const PatchConfig& config);

}  // namespace sparsereel::models
