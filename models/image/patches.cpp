// Resizes and normalizes pictures, and cuts them into patches.
#include "models/image/patches.h"

#include <ATen/ATen.h>

namespace sparsereel::models {
namespace {

at::Tensor color_numbers(const std::array<double, 3>& numbers) {
  return at::tensor(at::ArrayRef<double>(numbers.data(), numbers.size()), at::kDouble).view({3, 1, 1});
}

/// Returns the picture's normalized colors, fp32 [3, height, width].
at::Tensor normalized_pixels(const Picture& picture, const PatchConfig& config) {
  at::Tensor bytes = at::empty({picture.height, picture.width, 3}, at::kByte);
  std::ranges::copy(picture.pixels, bytes.mutable_data_ptr<uint8_t>());
  const at::Tensor pixels = bytes.permute({2, 0, 1}).to(at::kDouble).mul(config.rescale_factor).to(at::kFloat);
  return ((pixels - color_numbers(config.image_mean).to(at::kFloat)) / color_numbers(config.image_std).to(at::kFloat));
}

}  // namespace

PicturePatches picture_patches(const Picture& picture, const PatchConfig& config) {
  const PatchSizes size = patched_size(picture.height, picture.width, config);
  const Picture resized = resample(picture, size.height, size.width, ResampleFilter::bicubic, whole(picture));
  PicturePatches patches = {
      .pixels = {}, .rows = size.height / config.patch_size, .columns = size.width / config.patch_size};
  const int64_t square = config.merge_size, edge = config.patch_size;
  patches.pixels = normalized_pixels(resized, config)
                       .view({3, patches.rows / square, square, edge, patches.columns / square, square, edge})
                       .permute({1, 4, 2, 5, 0, 3, 6})  // order of axes: squares, patches of a square, colors, pixels
                       .unsqueeze(5)
                       .expand({-1, -1, -1, -1, -1, config.temporal_patch_size, -1, -1})
                       .reshape({patches.rows * patches.columns, -1});
  return patches;
}

}  // namespace sparsereel::models
