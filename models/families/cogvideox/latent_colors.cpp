// The colors of the latents of the tiny model's VAE, which has 8 channels. They were fitted by
// assets/tiny-training/fit_latent_colors.py and explain 97% of the variance of colors in other videos. No colors are
// known for the 16 channels of the published VAE.
#include "models/families/cogvideox/loaders.h"

namespace sparsereel::models {
namespace {

constexpr std::array<LinearColor, 8> kTinyChannels = {{
    {0.084217F, 0.134481F, 0.298493F},
    {-0.080288F, 0.030647F, -0.243361F},
    {0.124001F, 0.045216F, 0.103887F},
    {0.314321F, -0.099166F, 0.023730F},
    {-0.031103F, 0.112156F, -0.015296F},
    {-0.057148F, -0.199860F, -0.077702F},
    {-0.269226F, -0.291427F, 0.171892F},
    {0.043072F, -0.024831F, 0.174569F},
}};
constexpr LatentColors kTinyColors = {.channels = kTinyChannels, .constant = {-0.000639F, 0.047297F, -0.025131F}};

}  // namespace

const LatentColors* cogvideox_latent_colors(int64_t channels) {
  return channels == std::ssize(kTinyChannels) ? &kTinyColors : nullptr;
}

}  // namespace sparsereel::models
