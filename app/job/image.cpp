// Bytes -> 0..1.
#include "app/job/image.h"

#include <ATen/ATen.h>

#include "app/media/image.h"

namespace sparsereel::app {

namespace {

at::Tensor pixels_of(const std::string& file) {
  Image image = read_image(file);
  const at::Tensor bytes = at::from_blob(image.pixels.data(), {image.height, image.width, 3}, at::kByte);
  return bytes.to(at::kFloat).div(255);
}

}  // namespace

void add_images(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline) {
  if (plan.image.empty()) return;
  models::Images images = {.first = pixels_of(plan.image)};
  if (!plan.last_image.empty()) images.last = pixels_of(plan.last_image);
  pipeline.add_images(conditioning, plan, images);
}

}  // namespace sparsereel::app
