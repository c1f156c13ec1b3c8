// Computes unconditional + scale * (conditional - unconditional), in this order, so that results round as in the
// reference implementation.
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

namespace {

at::Tensor in_single(const at::Tensor& prediction) {
  return prediction.to(at::kFloat);
}

/// The predictions of both passes.
struct Both {
  Prediction unconditional, conditional;
};

/// Exchanges the predictions of two ranks: rank 0 has computed the unconditional pass, rank 1 the conditional one.
Both exchanged(const Prediction& own, Group& ranks) {
  Both both;
  for (const auto part : {&Prediction::video, &Prediction::sound}) {
    if (!(own.*part).defined()) continue;
    const at::Tensor mine = (own.*part).contiguous();
    const std::vector<at::Tensor> all = {at::empty_like(mine), at::empty_like(mine)};
    ranks.all_gather(mine, all);
    both.unconditional.*part = all[0];
    both.conditional.*part = all[1];
  }
  return both;
}

}  // namespace

Prediction Guidance::predict(const at::Tensor& latents, const Conditioning& conditioning, double timestep,
                             const Denoise& denoise, Group* ranks) const {
  if (conditioning.passes() == 1) return denoise(latents, conditioning).each(in_single);
  Both both;
  if (ranks != nullptr) {
    both = exchanged(denoise(latents, conditioning.pass(ranks->rank())).each(in_single), *ranks);
  } else if (passes_ == GuidancePasses::batched) {
    const Prediction all = denoise(at::cat({latents, latents}), conditioning).each(in_single);
    both.unconditional = all.each([](const at::Tensor& part) { return part.narrow(0, 0, 1); });
    both.conditional = all.each([](const at::Tensor& part) { return part.narrow(0, 1, 1); });
  } else {
    both.unconditional = denoise(latents, conditioning.pass(0)).each(in_single);
    both.conditional = denoise(latents, conditioning.pass(1)).each(in_single);
  }
  const double scale = this->scale(timestep);
  const auto guided = [&](at::Tensor Prediction::*part) {
    const at::Tensor& unconditional = both.unconditional.*part;
    return unconditional.defined() ? unconditional + scale * (both.conditional.*part - unconditional) : at::Tensor();
  };
  return {.video = guided(&Prediction::video), .sound = guided(&Prediction::sound)};
}

}  // namespace sparsereel::models
