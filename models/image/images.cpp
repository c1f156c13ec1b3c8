// Makes pictures from tensors, and pictures of random colors.
#include "models/image/images.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "hilbert/error.h"

namespace sparsereel::models {

Picture picture_of(const at::Tensor& image) {
  if (!at::isfinite(image).all().item<bool>())
    throw bad_input("an image holds NaN or Inf", "give finite numbers from 0 to 1");
  const at::Tensor bytes = image.to(at::kCPU, at::kFloat).clamp(0, 1).mul(255).round().to(at::kByte).contiguous();
  const auto* pixels = bytes.const_data_ptr<uint8_t>();
  return {.height = bytes.size(0), .width = bytes.size(1), .pixels = {pixels, pixels + bytes.numel()}};
}

Picture make_up_image(int64_t height, int64_t width, uint64_t seed) {
  constexpr int64_t kSpots = 4;  // spots of random color along each edge
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor spots = at::rand({1, 3, kSpots, kSpots}, generator, at::TensorOptions().dtype(at::kFloat));
  const at::Tensor picture = at::upsample_bilinear2d(spots, {height, width}, /*align_corners=*/true);
  return picture_of(picture[0].permute({1, 2, 0}));
}

}  // namespace sparsereel::models
