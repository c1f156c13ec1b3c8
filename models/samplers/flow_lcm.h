// Sampling in several steps for models that were distilled to predict the clean latents in one step (latent consistency
// models, arXiv:2310.04378; distribution matching, arXiv:2405.14867). Works like diffusers' FlowMatchLCMScheduler.
#pragma once

#include "models/samplers/flow_schedule.h"
#include "models/samplers/sampler.h"

namespace sparsereel::models {

class FlowLcmSampler : public Sampler {
 public:
  explicit FlowLcmSampler(FlowSchedule schedule);
  /// Adds new noise of the next level to the predicted clean latents. Draws noise in fp32 in every step; like the
  /// reference, it draws noise even in the last step, which adds none. The result has the prediction's dtype.
  at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                  at::Generator generator) override;
  at::Tensor predicted_original(const at::Tensor& prediction, int64_t index, const at::Tensor& sample) const override;

 private:
  int64_t draws(int64_t /*index*/) const override { return 1; }

  at::Tensor sigmas_;  // [steps + 1]
};

}  // namespace sparsereel::models
