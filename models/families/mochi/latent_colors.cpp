// The colors of the latents of Mochi's VAE. The numbers are those of kijai/ComfyUI-MochiWrapper (Apache license 2.0),
// in latent_preview.py at commit e1bd052.
#include "models/families/mochi/loaders.h"

namespace sparsereel::models {
namespace {

constexpr std::array<LinearColor, 12> kMochiChannels = {{{-0.0069F, -0.0045F, 0.0018F},
                                                         {0.0154F, -0.0692F, -0.0274F},
                                                         {0.0333F, 0.0019F, 0.0206F},
                                                         {-0.1390F, 0.0628F, 0.1678F},
                                                         {-0.0725F, 0.0134F, -0.1898F},
                                                         {0.0074F, -0.0270F, -0.0209F},
                                                         {-0.0176F, -0.0277F, -0.0221F},
                                                         {0.5294F, 0.5204F, 0.3852F},
                                                         {-0.0326F, -0.0446F, -0.0143F},
                                                         {-0.0659F, 0.0153F, -0.0153F},
                                                         {0.0185F, -0.0217F, 0.0014F},
                                                         {-0.0396F, -0.0495F, -0.0281F}}};
constexpr LatentColors kMochiColors = {.channels = kMochiChannels, .constant = {-0.0940F, -0.1418F, -0.1453F}};

}  // namespace

const LatentColors* mochi_latent_colors(int64_t channels) {
  return channels == std::ssize(kMochiChannels) ? &kMochiColors : nullptr;
}

}  // namespace sparsereel::models
