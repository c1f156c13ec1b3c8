// Stretches, and finds the place among the latents.
#include "models/engine/image_stage.h"

#include <ATen/ATen.h>

namespace sparsereel::models {

at::Tensor fit_image(const at::Tensor& image, int64_t height, int64_t width) {
  const at::Tensor picture = image.permute({2, 0, 1}).unsqueeze(0).contiguous();
  const at::Tensor fitted = at::_upsample_bicubic2d_aa(picture, {height, width}, /*align_corners=*/false);
  return fitted.clamp(0, 1).mul(2).sub(1).unsqueeze(2);
}

void keep_first_frame(Conditioning& conditioning, const at::Tensor& latents, const Plan& plan, const ModelSpec& spec) {
  const std::vector<int64_t> shape = latents_shape(spec, plan.latent);
  const int64_t axis = frames_axis(spec.layout), frames = shape[static_cast<size_t>(axis)];
  const int64_t first = frames - plan.latent.frames;  // behind what only fills up
  std::vector<int64_t> of_frames = {1, 1, 1, 1, 1};
  of_frames[static_cast<size_t>(axis)] = frames;
  conditioning.latents = at::zeros(shape, latents.options());
  conditioning.latents.select(axis, first).copy_(latents.select(2, 0));
  conditioning.mask = at::ones(of_frames, latents.options());
  conditioning.mask.select(axis, first).zero_();
}

}  // namespace sparsereel::models
