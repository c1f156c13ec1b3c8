// Loads the expert that a step needs, and first frees the other one if memory is too small for both.
#include "models/engine/experts.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <system_error>
#include <utility>

#include "models/store/weights/device.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {

Experts::Experts(const ModelSpec& spec, c10::Device device, Load load, Fits fits)
    : specs_(spec.experts),
      train_steps_(static_cast<double>(spec.scheduler.num_train_timesteps)),
      device_(device),
      load_(std::move(load)),
      fits_(std::move(fits)),
      transformers_(specs_.size()) {}

size_t Experts::at(double timestep) const {
  const auto denoises = [&](const ExpertSpec& expert) { return timestep >= expert.from_share * train_steps_; };
  const auto found = std::ranges::find_if(specs_, denoises);
  return static_cast<size_t>(std::min(found, specs_.end() - 1) - specs_.begin());
}

Experts::~Experts() {
  stop_ = true;
}

void Experts::begin(size_t expert) {
  if (loaded(expert) != nullptr) return;
  begun_expert_ = expert;
  try {
    begun_ = std::async(std::launch::async, [this, role = specs_[expert].role] {
      const c10::InferenceMode guard;  // the mode is thread-local, so this thread needs its own
      const c10::OptionalDeviceGuard device(device_.is_cpu() ? std::nullopt : std::optional(device_));
      const StoppableWork stoppable(stop_);
      return load_(role);
    });
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): without a thread, load() loads the expert later
  }
}

void Experts::settle() {
  if (!begun_.valid()) return;
  constexpr std::chrono::milliseconds kBetweenLooks(20);
  while (begun_.wait_for(kBetweenLooks) != std::future_status::ready) StoppableWork::throw_if_stopped();
  try {
    transformers_[begun_expert_] = begun_.get();
  } catch (...) {  // NOLINT(bugprone-empty-catch): load() tries again with fewer experts, and reports the error
  }
}

LoadedTransformer* Experts::loaded(size_t expert) {
  settle();
  return transformers_[expert].get();
}

LoadedTransformer& Experts::load(size_t expert) {
  settle();
  if (transformers_[expert]) return *transformers_[expert];
  if (any_loaded() && !fits_(specs_[expert].role)) release();
  transformers_[expert] = load_(specs_[expert].role);
  return *transformers_[expert];
}

bool Experts::any_loaded() {
  settle();
  return std::ranges::any_of(transformers_, [](const auto& transformer) { return transformer != nullptr; });
}

size_t Experts::loaded_count() {
  settle();
  return static_cast<size_t>(
      std::ranges::count_if(transformers_, [](const auto& transformer) { return transformer != nullptr; }));
}

void Experts::release() {
  settle();
  for (auto& transformer : transformers_) transformer.reset();
  give_back_kept_memory(device_);
}

}  // namespace sparsereel::models
