// Draws small pictures of latents without a VAE: a linear map turns the channels of each latent into a color.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <span>

#include "models/request/spec.h"

namespace sparsereel::models {

using LinearColor = std::array<float, 3>;  // red, green and blue; from -1 (black) to 1 (white)

/// A linear map from a latent, at the scale at which it is denoised, to the mean color of the pixels and frames that it
/// stands for.
struct LatentColors {
  std::span<const LinearColor> channels;  // the color that one unit of each channel adds
  LinearColor constant{};                 // the color of a latent of zeros
};

class LatentPreview {
 public:
  /// `layout` is the layout of the latents that draw() will get.
  LatentPreview(const LatentColors& colors, LatentLayout layout);

  /// Draws latents of any dtype: [1, C, F, H, W] or [1, F, C, H, W], as the layout says. Returns bytes [F, H, W, 3] in
  /// RGB, on the device of the latents. NaN becomes black. Does not wait for the device. Throws Error if the latents
  /// have another number of axes or channels.
  at::Tensor draw(const at::Tensor& latents) const;

 private:
  at::Tensor factors_, constant_;  // fp32 [C, 3] and [3] on the CPU, scaled so that colors are 0 to 255
  LatentLayout layout_;
};

}  // namespace sparsereel::models
