// The interface of a loaded transformer to the pipeline. One loop runs the transformers of all families.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/request/attention_run.h"
#include "models/request/conditioning.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/layer_weights.h"
#include "models/transformer/attend.h"
#include "models/transformer/step_cache.h"
#include "models/transformer/transformer_input.h"

namespace sparsereel::models {

class Transformer;

class LoadedTransformer {
 public:
  virtual ~LoadedTransformer() = default;

  /// Runs the transformer on latents [B, ..], the conditioning of B passes, and timesteps [B], which may be fractional.
  /// If the model takes conditioning latents as channels, they are in `latents`, after the other channels, and not in
  /// the conditioning. Returns the prediction, in the dtype of the latents and in their shape without conditioning.
  /// `cache` may skip the blocks after the first one, and remembers what they add when they run. If it is null, all
  /// blocks run.
  virtual at::Tensor forward(const at::Tensor& latents, const Conditioning& conditioning, const at::Tensor& timesteps,
                             AttentionRun& run, StepCache* cache = nullptr) = 0;
  /// Does the same for an input that may also have sound and keyframes.
  virtual Prediction predict(const TransformerInput& input, AttentionRun& run, StepCache* cache = nullptr) {
    return {.video = forward(input.latents, input.conditioning, input.timesteps, run, cache)};
  }
  /// Computes the modulation of all steps in advance, for families whose modulation depends only on the timestep.
  /// Without this call, each forward pass at new timesteps reads the weights of the modulation again.
  virtual void prepare(const StepTimes& /*times*/) {}
  /// Adds what the GPU kernels have counted since the last call to the run's statistics. Waits for the device.
  virtual void collect(AttentionRun& run) = 0;
  /// Returns the bytes of all weights, on the device, in host memory or in files.
  virtual uint64_t weight_bytes() const = 0;
  /// Returns the bytes of the weights of each block.
  virtual std::vector<uint64_t> block_bytes() const { return {}; }
  /// Returns true if any weight that the file holds packed or in 8 bits was rounded to 8 bits again.
  virtual bool rounds_again() const { return false; }
};

/// Loads the weights that `transformer` lists from the component. Returns an object that runs it. `streaming` says how
/// many blocks do not stay on the GPU. Unused tensors are allowed if their names contain one of the texts in `unused`.
/// If the family lists modulation weights, these are read from the component each time they are needed; then the
/// component must outlive the result.
std::unique_ptr<LoadedTransformer> loaded_transformer(std::unique_ptr<Transformer> transformer,
                                                      const Component& component, at::Device device,
                                                      WeightFormat format, const Streaming& streaming = {},
                                                      const std::vector<std::string>& unused = {});

}  // namespace sparsereel::models
