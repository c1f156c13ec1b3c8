// What all of them refuse.
#include "models/vae/vae.h"

#include <ATen/ATen.h>

#include <sstream>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

[[noreturn]] void refuse_to_encode() {
  throw bad_input("this model's VAE cannot encode", "leave images out, or use a model that takes them");
}

}  // namespace

void check_latents(const at::Tensor& latents, int64_t channels) {
  if (latents.dim() == 5 && latents.size(0) == 1 && latents.size(1) == channels && latents.numel() > 0) return;
  std::ostringstream cause;
  cause << "The VAE cannot decode latents of shape " << latents.sizes() << ": [1, " << channels
        << ", frames, height, width] is needed";
  throw bad_input(cause.str(), "Give the latents that this model's transformer made.");
}

LatentDistribution Vae::encode(const at::Tensor&, bool, const DecodeProgress&) {
  refuse_to_encode();
}

uint64_t Vae::untiled_encode_bytes(int64_t, int64_t, int64_t) const {
  refuse_to_encode();
}

}  // namespace sparsereel::models
