// One Euler step: along the predicted slope, as far as sigma falls.
#include "models/samplers/flow_euler.h"

#include <ATen/ATen.h>

#include <utility>

namespace sparsereel::models {

FlowEulerSampler::FlowEulerSampler(const SchedulerConfig& config, int64_t num_inference_steps) {
  FlowSchedule schedule = euler_flow_schedule(config, num_inference_steps);
  timesteps_ = std::move(schedule.timesteps);
  sigmas_ = std::move(schedule.sigmas);
}

at::Tensor FlowEulerSampler::step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                                  at::Generator) {
  const at::Tensor next = sample.to(at::kFloat) + (sigmas_[index + 1] - sigmas_[index]) * prediction;
  return next.to(prediction.scalar_type());
}

}  // namespace sparsereel::models
