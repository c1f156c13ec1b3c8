// Bytes -> 0..1.
#include "app/job/image.h"

#include <ATen/ATen.h>

#include "app/media/image.h"

namespace sparsereel::app {

void add_image(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline) {
  if (plan.image.empty()) return;
  Image image = read_image(plan.image);
  const at::Tensor bytes = at::from_blob(image.pixels.data(), {image.height, image.width, 3}, at::kByte);
  pipeline.add_image(conditioning, plan, bytes.to(at::kFloat).div(255));
}

}  // namespace sparsereel::app
