// Crops and normalizes pictures for an image encoder.
#include "models/image/encoder_pixels.h"

#include <ATen/ATen.h>

#include "models/image/resize.h"

namespace sparsereel::models {
namespace {

/// Shapes the numbers as [3, 1, 1].
at::Tensor of_channels(const std::array<double, 3>& numbers) {
  return at::tensor(at::ArrayRef<double>(numbers.data(), numbers.size()), at::kFloat).view({3, 1, 1});
}

}  // namespace

at::Tensor encoder_pixels(const Picture& picture, const ImageProcessorConfig& config) {
  constexpr double kWhite = 255;  // square_image() scales white to 1
  const at::Tensor square = square_image(picture, config.crop_size);
  return (square * (kWhite * config.rescale_factor) - of_channels(config.image_mean)) / of_channels(config.image_std);
}

}  // namespace sparsereel::models
