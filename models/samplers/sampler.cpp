// Kinds of samplers -> their classes and schedules.
#include "models/samplers/sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "hilbert/error.h"
#include "models/samplers/ddim.h"
#include "models/samplers/dpm_solver.h"
#include "models/samplers/euler_ancestral.h"
#include "models/samplers/flow_euler.h"
#include "models/samplers/noise.h"
#include "models/samplers/unipc.h"

namespace sparsereel::models {
namespace {

void check_steps(const SchedulerConfig& config, int64_t num_inference_steps) {
  const int64_t train_steps = config.num_train_timesteps;
  if (num_inference_steps >= 1 && num_inference_steps <= train_steps) return;
  throw bad_option("steps",
                   "is " + std::to_string(num_inference_steps) +
                       ", but scheduler_config.json has num_train_timesteps " + std::to_string(train_steps),
                   "use 1 to " + std::to_string(train_steps) + " steps");
}

}  // namespace

bool Sampler::draw_ahead(int64_t index, const at::Tensor& sample, const at::Generator& generator) {
  constexpr int64_t kMostAhead = 16;  // of megabytes each
  const int64_t last = std::min(index + kMostAhead, std::ssize(timesteps_)) - 1, next = index + std::ssize(drawn_);
  if (next > last || draws(next) == 0) return false;
  at::Generator ahead = generator.clone();
  if (!drawn_.empty()) ahead.set_state(drawn_.back().generator);
  at::Tensor noise;
  for (int64_t draw = 0; draw < draws(next); ++draw) noise = draw_noise(sample.sizes(), sample.scalar_type(), ahead);
  drawn_.push_back({.noise = noise, .generator = ahead.get_state()});
  return next < last;
}

at::Tensor Sampler::noise_of(int64_t index, const at::Tensor& sample, at::Generator& generator) {
  if (drawn_.empty()) draw_ahead(index, sample, generator);
  const Drawn drawn = drawn_.front();
  drawn_.pop_front();
  generator.set_state(drawn.generator);
  return drawn.noise.to(sample.device());
}

void Sampler::restore(const std::map<std::string, at::Tensor>& state) {
  drawn_.clear();
  if (state.empty()) return;
  throw bad_input("sampler state \"" + state.begin()->first + "\" does not belong to a sampler without history",
                  "resume with the scheduler that wrote the checkpoint");
}

std::unique_ptr<Sampler> make_sampler(const SchedulerConfig& config, int64_t num_inference_steps) {
  check_steps(config, num_inference_steps);
  switch (config.kind) {
    case SamplerKind::ddim:
      return std::make_unique<DdimSampler>(NoiseSchedule(config, num_inference_steps));
    case SamplerKind::dpm_solver:
      return std::make_unique<DpmSolverSampler>(NoiseSchedule(config, num_inference_steps));
    case SamplerKind::euler_ancestral:
      return std::make_unique<EulerAncestralSampler>(noise_levels(config, num_inference_steps), config.prediction_type);
    case SamplerKind::flow_dpm_solver:
      return std::make_unique<UniPcSampler>(dpm_flow_schedule(config, num_inference_steps));
    case SamplerKind::flow_euler:
      return std::make_unique<FlowEulerSampler>(euler_flow_schedule(config, num_inference_steps));
    case SamplerKind::unipc:
      break;
  }
  return std::make_unique<UniPcSampler>(unipc_flow_schedule(config, num_inference_steps), config.disable_corrector);
}

}  // namespace sparsereel::models
