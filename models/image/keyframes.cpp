// Fits pictures to a video, and adds noise to their latents.
#include "models/image/keyframes.h"

#include <ATen/ATen.h>

#include "models/image/resize.h"
#include "models/samplers/noise.h"

namespace sparsereel::models {

std::vector<Picture> keyframe_pictures(const std::vector<Picture>& pictures, int64_t height, int64_t width) {
  std::vector<Picture> fitted;
  for (const Picture& picture : pictures)
    fitted.push_back(fitted.empty() ? stretched(picture, height, width) : covered(picture, height, width));
  return fitted;
}

at::Tensor noised_keyframe(const at::Tensor& latents, double time, at::Generator& generator) {
  const at::Tensor noise = draw_noise(latents.sizes(), at::kFloat, generator).to(latents.device());
  const at::Tensor share = at::full({}, time, at::kFloat);  // rounded to fp32 before it is subtracted from 1
  return latents.to(at::kFloat) * share.item<float>() + noise * (1 - share).item<float>();
}

}  // namespace sparsereel::models
