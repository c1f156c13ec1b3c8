// A model's transformers. Each denoises its own timesteps and is loaded when a step needs it.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "models/request/spec.h"
#include "models/transformer/loaded_transformer.h"

namespace sparsereel::models {

class Experts {
 public:
  /// Loads a role's transformer. May be called in any thread.
  using Load = std::function<std::shared_ptr<LoadedTransformer>(const std::string& role)>;
  /// Returns true if a role's transformer fits into memory beside the loaded ones.
  using Fits = std::function<bool(const std::string& role)>;

  Experts(const ModelSpec& spec, c10::Device device, Load load, Fits fits);
  /// Stops a load that runs in the background, and waits until its thread has ended.
  ~Experts();
  Experts(const Experts&) = delete;
  Experts& operator=(const Experts&) = delete;

  /// Returns the index of the expert that denoises this timestep.
  size_t at(double timestep) const;
  size_t size() const { return specs_.size(); }
  /// Begins to load an expert in a separate thread, if the system can create a thread. All later calls except at() and
  /// size() wait until this expert is loaded.
  void begin(size_t expert);
  /// Loads an expert unless it is loaded. Other experts stay loaded if the new one fits beside them; otherwise they are
  /// freed first.
  LoadedTransformer& load(size_t expert);
  /// Returns nullptr if the expert is not loaded.
  LoadedTransformer* loaded(size_t expert);
  bool any_loaded();
  size_t loaded_count();
  void release();

 private:
  void settle();

  std::vector<ExpertSpec> specs_;
  double train_steps_;
  c10::Device device_;
  Load load_;
  Fits fits_;
  std::vector<std::shared_ptr<LoadedTransformer>> transformers_;
  std::atomic<bool> stop_{false};  // stops the loading of begun_, whose destructor waits for the thread
  std::future<std::shared_ptr<LoadedTransformer>> begun_;
  size_t begun_expert_ = 0;
};

}  // namespace sparsereel::models
