// Converts pictures to tensors, and resizes and crops them like CLIPImageProcessor.
#include "models/image/resize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

/// Returns the picture as fp32 [H, W, 3] in 0..255.
at::Tensor tensor_of(const Picture& picture) {
  at::Tensor floats = at::empty({picture.height, picture.width, 3}, at::kFloat);
  std::ranges::copy(picture.pixels, floats.mutable_data_ptr<float>());
  return floats;
}

/// Returns the numbers as fp32 [3, 1, 1].
at::Tensor of_channels(const std::array<double, 3>& numbers) {
  return at::tensor(at::ArrayRef<double>(numbers.data(), numbers.size()), at::kFloat).view({3, 1, 1});
}

}  // namespace

at::Tensor fit_image(const Picture& picture, int64_t height, int64_t width, ResizeRule rule) {
  const PictureBox part = rule == ResizeRule::cover ? center(picture, height, width) : whole(picture);
  return frame_of(resample(picture, height, width, ResampleFilter::lanczos, part));
}

at::Tensor frame_of(const Picture& picture) {
  const at::Tensor frame = tensor_of(picture).div(255).mul(2).sub(1).permute({2, 0, 1});
  return frame.contiguous().view({1, 3, 1, picture.height, picture.width});
}

Picture stretched(const Picture& picture, int64_t height, int64_t width) {
  return resample(picture, height, width, ResampleFilter::lanczos, whole(picture));
}

Picture covered(const Picture& picture, int64_t height, int64_t width) {
  if (picture.height == height && picture.width == width) return picture;
  const double scale = std::max(static_cast<double>(width) / static_cast<double>(picture.width),
                                static_cast<double>(height) / static_cast<double>(picture.height));
  const auto covers = [&](int64_t size, int64_t least) {
    return std::max(least, static_cast<int64_t>(std::nearbyint(static_cast<double>(size) * scale)));
  };
  const Picture large = stretched(picture, covers(picture.height, height), covers(picture.width, width));
  const int64_t left = (large.width - width) / 2, top = (large.height - height) / 2;
  Picture result = {.height = height, .width = width};
  for (int64_t y = 0; y < height; ++y) {
    const auto first = large.pixels.begin() + 3 * ((top + y) * large.width + left);
    result.pixels.insert(result.pixels.end(), first, first + 3 * width);
  }
  return result;
}

at::Tensor square_image(const Picture& picture, int64_t side) {
  // A picture with a larger ratio of its edges would take gigabytes once its shorter edge is scaled to `side`.
  constexpr int64_t kMostRatio = 100;
  const int64_t shorter = std::min(picture.height, picture.width), longer = std::max(picture.height, picture.width);
  if (longer / shorter >= kMostRatio)
    throw bad_option("image",
                     "of " + std::to_string(picture.width) + "x" + std::to_string(picture.height) +
                         " is too narrow for the model's image encoder",
                     "crop it to a shape below " + std::to_string(kMostRatio) + " to 1");
  const int64_t height = side * picture.height / shorter, width = side * picture.width / shorter;
  const at::Tensor all =
      tensor_of(resample(picture, height, width, ResampleFilter::bicubic, whole(picture))).div(255).permute({2, 0, 1});
  const at::Tensor middle = all.narrow(1, (height - side) / 2, side).narrow(2, (width - side) / 2, side);
  return middle.contiguous().unsqueeze(0);
}

at::Tensor encoder_pixels(const Picture& picture, const ImageProcessorConfig& config) {
  constexpr double kWhite = 255;  // square_image() scales white to 1
  const at::Tensor square = square_image(picture, config.crop_size);
  return (square * (kWhite * config.rescale_factor) - of_channels(config.image_mean)) / of_channels(config.image_std);
}

}  // namespace sparsereel::models
