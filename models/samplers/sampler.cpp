// Draws a sampler's noise; on request, draws it ahead for later steps.
#include "models/samplers/sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "hilbert/error.h"
#include "models/samplers/noise.h"

namespace sparsereel::models {
bool Sampler::draw_ahead(int64_t index, const at::Tensor& sample, const at::Generator& generator) {
  constexpr int64_t kMostAhead = 16;  // a limit, because each draw takes megabytes
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

}  // namespace sparsereel::models
