// A sampler computes the latents of the next timestep from the model's prediction at this one. The timesteps come from
// the schedule with which the sampler is made (flow_schedule.h, noise_schedule.h).
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

  /// Returns the run's timesteps, noisiest first; size = num_inference_steps. They need not be whole; they are rounded
  /// as in the reference.
  const std::vector<double>& timesteps() const { return timesteps_; }
  /// Returns the latents with which a run starts, in the dtype of `noise`. `noise` has standard deviation 1, or holds
  /// latents that the user gives.
  virtual at::Tensor start(const at::Tensor& noise) const { return noise; }
  /// Returns the model's input for the sample of a step, in the sample's dtype.
  virtual at::Tensor model_input(const at::Tensor& sample, int64_t /*index*/) const { return sample; }
  /// Draws a step's noise before the step is made. The step is the first one, from `index` on, whose noise has not been
  /// drawn. The host can thus draw while a GPU computes the prediction of step `index`. This matters because two draws
  /// may take nearly as long as a step that reuses cached results. The noise of each step, and `generator` after it,
  /// are the same as without this call. Returns true if more noise can be drawn ahead.
  bool draw_ahead(int64_t index, const at::Tensor& sample, const at::Generator& generator);
  /// Returns the latents of step index + 1. `prediction` is in fp32; for flow matching it is in the model's own dtype,
  /// because the rounding to this dtype affects the result. `sample` has the prediction's shape; the order of the axes
  /// does not matter. The result has the reference's dtype; the pipeline casts it to the run's dtype. Noise is drawn
  /// from `generator` (CPU) as often, and in the same dtype and order, as the reference draws it. To redo a step,
  /// restore() the earlier state and reset the generator.
  virtual at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                          at::Generator generator) = 0;
  /// Returns the final latents (x0) that the prediction of step `index` implies. Takes the same arguments as step().
  virtual at::Tensor predicted_original(const at::Tensor& prediction, int64_t index,
                                        const at::Tensor& sample) const = 0;
  /// Returns the tensors that a denoising checkpoint must hold in addition to the latents and the step. Empty for
  /// samplers whose steps need nothing from earlier steps.
  virtual std::map<std::string, at::Tensor> state() const { return {}; }
  /// Continues from the result of state(). Throws Error if the tensors do not belong to this kind of sampler.
  virtual void restore(const std::map<std::string, at::Tensor>& state);

 protected:
  /// Returns how many times step `index` draws noise. The step adds the noise of the last draw.
  virtual int64_t draws(int64_t /*index*/) const { return 0; }
  /// Returns the normally distributed noise of step `index` on the sample's device. It is drawn in the sample's dtype,
  /// because the same seed gives other numbers in another dtype.
  at::Tensor noise_of(int64_t index, const at::Tensor& sample, at::Generator& generator);

  std::vector<double> timesteps_;

 private:
  struct Drawn {
    at::Tensor noise, generator;  // on the CPU: the noise, and the generator's state after the draw
  };
  std::deque<Drawn> drawn_;  // noise that was drawn ahead, for the next steps in order
};

}  // namespace sparsereel::models
