// Fits keyframe pictures to a video, and adds noise to their latents.
#include "models/image/keyframes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "hilbert/error.h"
#include "models/image/resize.h"
#include "models/samplers/noise.h"

namespace sparsereel::models {

void check_covers(int64_t picture_height, int64_t picture_width, int64_t height, int64_t width,
                  const std::string& file) {
  const auto pixels = [](int64_t of_height, int64_t of_width) {
    return static_cast<double>(of_height) * static_cast<double>(of_width);
  };
  const double scale = std::max(static_cast<double>(width) / static_cast<double>(picture_width),
                                static_cast<double>(height) / static_cast<double>(picture_height));
  if (scale * scale * pixels(picture_height, picture_width) <= static_cast<double>(kMostImagePixels)) return;
  // true: the picture's height is scaled to the video's height, and its width is cropped
  const bool is_wide = picture_width * height >= picture_height * width;
  const int64_t kept = is_wide ? height : width, most = kMostImagePixels / kept / kept;
  throw bad_option("last_image",
                   (file.empty() ? "" : file + " ") + "of " + std::to_string(picture_width) + "x" +
                       std::to_string(picture_height) + " is too narrow to cover a video of " + std::to_string(width) +
                       "x" + std::to_string(height),
                   "crop it to a shape of at most " + std::to_string(std::max<int64_t>(most, 1)) + " to 1");
}

std::vector<Picture> keyframe_pictures(const std::vector<Picture>& pictures, int64_t height, int64_t width) {
  std::vector<Picture> fitted;
  for (size_t i = 1; i < pictures.size(); ++i) check_covers(pictures[i].height, pictures[i].width, height, width);
  for (const Picture& picture : pictures)
    fitted.push_back(fitted.empty() ? stretched(picture, height, width) : covered(picture, height, width));
  return fitted;
}

at::Tensor noised_keyframe(const at::Tensor& latents, double time, at::Generator& generator) {
  const at::Tensor noise = draw_noise(latents.sizes(), at::kFloat, generator).to(latents.device());
  // In fp32 as in the reference: `time` is rounded before it is subtracted from 1.
  const at::Tensor share = at::full({}, time, at::kFloat);
  return latents.to(at::kFloat) * share.item<float>() + noise * (1 - share).item<float>();
}

}  // namespace sparsereel::models
