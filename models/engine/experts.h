// A model's transformers: each denoises its own timesteps, and is loaded when a step needs it.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "models/request/spec.h"
#include "models/transformer/denoiser.h"

namespace sparsereel::models {

class Experts {
 public:
  /// Loads the expert with this role, in whatever thread.
  using Load = std::function<std::shared_ptr<Denoiser>(const std::string& role)>;
  /// Whether it fits into memory beside those that are loaded.
  using Fits = std::function<bool(const std::string& role)>;

  /// device: where they run.
  Experts(const ModelSpec& spec, c10::Device device, Load load, Fits fits);
  /// Stops what was begun, and waits for it.
  ~Experts();
  Experts(const Experts&) = delete;
  Experts& operator=(const Experts&) = delete;

  /// The one that denoises this timestep.
  size_t at(double timestep) const;
  size_t size() const { return specs_.size(); }
  /// Begins to load it in a thread of its own, where there is one to be had. All that follow wait for its end.
  void begin(size_t expert);
  /// Loads it unless it is there. The others stay where memory allows, and go first where it does not.
  Denoiser& load(size_t expert);
  /// nullptr where it is not there.
  Denoiser* loaded(size_t expert);
  bool any_loaded();
  void release();

 private:
  void settle();

  std::vector<ExpertSpec> specs_;
  double train_steps_;
  c10::Device device_;
  Load load_;
  Fits fits_;
  std::vector<std::shared_ptr<Denoiser>> denoisers_;
  std::atomic<bool> stop_{false};  // begun_, whose end is waited for before this goes
  std::future<std::shared_ptr<Denoiser>> begun_;
  size_t begun_expert_ = 0;
};

}  // namespace sparsereel::models
