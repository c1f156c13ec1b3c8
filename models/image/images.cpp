// What stands for a picture where any will do.
#include "models/image/images.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace sparsereel::models {

at::Tensor image_of(const uint8_t* pixels, int64_t height, int64_t width) {
  const at::Tensor bytes = at::from_blob(const_cast<uint8_t*>(pixels), {height, width, 3}, at::kByte);
  return bytes.to(at::kFloat).div(255);
}

at::Tensor make_up_image(int64_t height, int64_t width, uint64_t seed) {
  constexpr int64_t kSpots = 4;  // each way
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor spots = at::rand({1, 3, kSpots, kSpots}, generator, at::TensorOptions().dtype(at::kFloat));
  const at::Tensor picture = at::upsample_bilinear2d(spots, {height, width}, /*align_corners=*/true);
  return picture[0].permute({1, 2, 0}).contiguous();
}

}  // namespace sparsereel::models
