// Samplers: from the model's prediction at one timestep to the latents of the next. Which timesteps these are is the
// schedule's (flow_schedule.h, noise_schedule.h) that a sampler is made with.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel::models {

class Sampler {
 public:
  explicit Sampler(std::vector<double> timesteps) : timesteps_(std::move(timesteps)) {}
  virtual ~Sampler() = default;

  /// Timesteps of the run, of the noisiest step first; size = num_inference_steps. Real-valued, rounded as the
  /// reference rounds them.
  const std::vector<double>& timesteps() const { return timesteps_; }
  /// What a run starts from, of noise of deviation 1 (or of latents in its place), in its dtype. Else: it.
  virtual at::Tensor start(const at::Tensor& noise) const { return noise; }
  /// What the model is given of a step's sample, in its dtype. Else: it.
  virtual at::Tensor model_input(const at::Tensor& sample, int64_t /*index*/) const { return sample; }
  /// Draws noise of one step more, of `index`, the next to be taken, or of those behind it, so that the host draws
  /// while a GPU works on the prediction: two draws may take it nearly as long as a GPU a step that a cache reuses.
  /// Step after step gets the same noise, and leaves `generator` the same, as without. Returns whether more can be
  /// drawn.
  bool draw_ahead(int64_t index, const at::Tensor& sample, const at::Generator& generator);
  /// Latents of step index + 1. `prediction` (fp32; for flow matching the model's own dtype, whose rounding counts) and
  /// `sample` share a shape, in whatever order of axes; the result is in the dtype in which the reference returns it
  /// (the pipeline casts to the run's dtype). Noise is drawn from `generator` (CPU) exactly as often, and in the same
  /// dtype and order, as the reference draws it. To redo a step, restore() the state and the generator of before.
  virtual at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                          at::Generator generator) = 0;
  /// What the prediction of step `index` takes the final latents (x0) to be; arguments as of step().
  virtual at::Tensor predicted_original(const at::Tensor& prediction, int64_t index,
                                        const at::Tensor& sample) const = 0;
  /// History that a denoising checkpoint must keep besides latents and step; empty for single-step samplers.
  virtual std::map<std::string, at::Tensor> state() const { return {}; }
  /// Continues from state(). Throws Error on state that the sampler does not know.
  virtual void restore(const std::map<std::string, at::Tensor>& state);

 protected:
  /// How often a step draws; what it adds is the last draw.
  virtual int64_t draws(int64_t /*index*/) const { return 0; }
  /// The noise of step `index`, normal, on the sample's device. Drawn in the sample's dtype: draws of one seed differ
  /// between dtypes.
  at::Tensor noise_of(int64_t index, const at::Tensor& sample, at::Generator& generator);

  std::vector<double> timesteps_;

 private:
  struct Drawn {
    at::Tensor noise, generator;  // on the CPU; the generator's state behind it
  };
  std::deque<Drawn> drawn_;  // of the next steps
};

}  // namespace sparsereel::models
