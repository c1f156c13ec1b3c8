// A loaded transformer of any family, as the pipeline sees it, and the one loop that runs it.
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

  /// Predicts for latents [B, ..], a conditioning of B passes, and timesteps [B], whole or fractional. If the model
  /// takes conditioning latents as channels, they follow the channels of `latents` and are not in the conditioning.
  /// Returns the prediction in the shape and dtype of the latents without conditioning. `cache` may skip the blocks
  /// after the first, and remembers what they add when they run. If null, all blocks run.
  virtual at::Tensor forward(const at::Tensor& latents, const Conditioning& conditioning, const at::Tensor& timesteps,
                             AttentionRun& run, StepCache* cache = nullptr) = 0;
  /// Does the same for an input that may also have sound, keyframes and pictures. The prediction has the dtype of the
  /// latents.
  virtual Prediction predict(const TransformerInput& input, AttentionRun& run, StepCache* cache = nullptr) {
    return {.video = forward(input.latents, input.conditioning, input.timesteps, run, cache)};
  }
  /// Computes the modulation of all steps, for families whose modulation depends on nothing but the timestep. Without
  /// this call, each forward pass at new timesteps reads the weights for it again.
  virtual void prepare(const StepTimes& /*times*/) {}
  /// Adds what GPU kernels have counted since the last call to the run's statistics. Waits for the device.
  virtual void collect(AttentionRun& run) = 0;
  /// Returns the bytes of all weights, wherever they are kept.
  virtual uint64_t weight_bytes() const = 0;
  /// Returns the bytes of the weights of each block.
  virtual std::vector<uint64_t> block_bytes() const { return {}; }
  /// Returns true if packed or 8-bit weights were rounded to 8 bits again.
  virtual bool rounds_again() const { return false; }
};

/// Loads the weights that `transformer` lists from the component, and runs it: embed, blocks, head. `streaming` says
/// how many blocks do not stay on the GPU. Tensors whose names contain a text of `unused` may be present without being
/// read. If the family lists modulation weights, these are read whenever they are needed, and the component must
/// outlive the transformer.
std::unique_ptr<LoadedTransformer> loaded_transformer(std::unique_ptr<Transformer> transformer,
                                                      const Component& component, at::Device device,
                                                      WeightFormat format, const Streaming& streaming = {},
                                                      const std::vector<std::string>& unused = {});

}  // namespace sparsereel::models
