// Finds the place among the latents.
#include "models/engine/image_stage.h"

#include <ATen/ATen.h>

#include <utility>

namespace sparsereel::models {

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

void draw_latents(Conditioning& conditioning, LatentLayout layout, at::ScalarType dtype, at::Generator& generator) {
  const at::Tensor deviation = std::exchange(conditioning.deviation, {});
  if (!deviation.defined()) return;
  const at::Tensor noise = at::randn(deviation.sizes(), generator, at::TensorOptions().dtype(dtype));
  conditioning.latents = conditioning.latents.clone();  // the mean may be another run's too
  const int64_t axis = frames_axis(layout);
  at::Tensor drawn = conditioning.latents.narrow(axis, 0, deviation.size(axis));
  drawn.add_(deviation.to(drawn.options()) * noise.to(drawn.options()));
}

}  // namespace sparsereel::models
