// Computes unconditional + scale * (conditional - unconditional), in this order, to round as the reference does.
#include "models/engine/guidance.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace sparsereel::models {

double Guidance::scale(double timestep) const {
  if (!dynamic_) return scale_;
  const auto steps = static_cast<double>(num_inference_steps_);
  return 1 + scale_ * (1 - std::cos(std::numbers::pi * std::pow((steps - timestep) / steps, 5.0))) / 2;
}

at::Tensor Guidance::predict(const at::Tensor& latents, const Conditioning& conditioning, double timestep,
                             const Denoise& denoise, Group* ranks) const {
  if (conditioning.passes() == 1) return denoise(latents, conditioning).to(at::kFloat);
  at::Tensor unconditional, conditional;
  if (ranks != nullptr) {
    const at::Tensor own = denoise(latents, conditioning.pass(ranks->rank())).to(at::kFloat).contiguous();
    const std::vector<at::Tensor> all = {at::empty_like(own), at::empty_like(own)};
    ranks->all_gather(own, all);
    unconditional = all[0];
    conditional = all[1];
  } else if (passes_ == GuidancePasses::batched) {
    const at::Tensor both = denoise(at::cat({latents, latents}), conditioning).to(at::kFloat);
    unconditional = both.narrow(0, 0, 1);
    conditional = both.narrow(0, 1, 1);
  } else {
    unconditional = denoise(latents, conditioning.pass(0)).to(at::kFloat);
    conditional = denoise(latents, conditioning.pass(1)).to(at::kFloat);
  }
  return unconditional + scale(timestep) * (conditional - unconditional);
}

}  // namespace sparsereel::models
