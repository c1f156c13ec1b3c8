// Multiplies the channels by the map's factors, in fp32.
#include "models/vae/latent_preview.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

constexpr float kHalfRange = 127.5F;  // maps -1 .. 1 to 0 .. 255, after adding 1

}  // namespace

LatentPreview::LatentPreview(const LatentColors& colors, LatentLayout layout)
    : factors_(at::empty({std::ssize(colors.channels), 3}, at::kFloat)),
      constant_(at::empty({3}, at::kFloat)),
      layout_(layout) {
  float* factor = factors_.mutable_data_ptr<float>();
  for (const LinearColor& channel : colors.channels)
    factor = std::ranges::transform(channel, factor, [](float value) { return value * kHalfRange; }).out;
  std::ranges::transform(colors.constant, constant_.mutable_data_ptr<float>(),
                         [](float value) { return (value + 1) * kHalfRange; });
}

at::Tensor LatentPreview::draw(const at::Tensor& latents) const {
  const int64_t channels = factors_.size(0);
  if (latents.dim() != 5 || latents.size(0) != 1 || latents.size(channels_axis(layout_)) != channels)
    throw bad_input("latents without " + std::to_string(channels) + " channels cannot be drawn",
                    "draw latents of the model for which the map of colors was made");
  const at::Tensor last =
      layout_ == LatentLayout::frames_first ? latents[0].permute({0, 2, 3, 1}) : latents[0].permute({1, 2, 3, 0});
  const at::Tensor colors = at::matmul(last.to(at::kFloat), factors_.to(last.device(), /*non_blocking=*/true));
  return colors.add(constant_.to(last.device(), /*non_blocking=*/true))
      .nan_to_num(0)
      .round_()
      .clamp_(0, 255)
      .to(at::kByte);
}

}  // namespace sparsereel::models
