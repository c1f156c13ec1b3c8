// The transformer that leaves goes before the next one comes where both do not fit.
#include "models/engine/experts.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <utility>

namespace sparsereel::models {

Experts::Experts(const ModelSpec& spec, c10::Device device, Load load, Fits fits)
    : specs_(spec.experts),
      train_steps_(static_cast<double>(spec.scheduler.num_train_timesteps)),
      device_(device),
      load_(std::move(load)),
      fits_(std::move(fits)),
      denoisers_(specs_.size()) {}

size_t Experts::at(double timestep) const {
  const auto denoises = [&](const ExpertSpec& expert) { return timestep >= expert.from_share * train_steps_; };
  const auto found = std::ranges::find_if(specs_, denoises);
  return static_cast<size_t>(std::min(found, specs_.end() - 1) - specs_.begin());
}

Denoiser& Experts::load(size_t expert) {
  if (denoisers_[expert]) return *denoisers_[expert];
  if (any_loaded() && !fits_(specs_[expert].role)) release();
  denoisers_[expert] = load_(specs_[expert].role);
  return *denoisers_[expert];
}

bool Experts::any_loaded() const {
  return std::ranges::any_of(denoisers_, [](const auto& denoiser) { return denoiser != nullptr; });
}

void Experts::release() {
  for (auto& denoiser : denoisers_) denoiser.reset();
  if (!device_.is_cpu()) c10::getDeviceAllocator(device_.type())->emptyCache();
}

}  // namespace sparsereel::models
