// What the pipeline knows of a denoiser, whatever its family, and the one loop behind it.
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
#include "models/transformer/attend.h"
#include "models/transformer/step_cache.h"

namespace sparsereel::models {

class Transformer;

class Denoiser {
 public:
  virtual ~Denoiser() = default;

  /// latents [B, ..], behind whose channels there may be those of conditioning latents, which are no part of the
  /// conditioning then; conditioning of B passes, timesteps [B], whole or fractional; returns the prediction in the
  /// shape of the latents alone and in their dtype. cache: may leave the blocks after the first out, and remembers them
  /// where they ran; null: all blocks run.
  virtual at::Tensor forward(const at::Tensor& latents, const Conditioning& conditioning, const at::Tensor& timesteps,
                             AttentionRun& run, StepCache* cache = nullptr) = 0;
  /// Adds what GPU kernels counted since the last collection to the run's statistics; waits for the device.
  virtual void collect(AttentionRun& run) = 0;
  /// All weights, wherever they wait.
  virtual uint64_t weight_bytes() const = 0;
  /// Whether weights that their files have packed or in 8 bits were rounded to 8 bits, a second time.
  virtual bool rounds_again() const { return false; }
};

/// Loads the weights that `transformer` lists from the component, and runs it: embed, block after block, head.
/// offload: the blocks stay in page-locked host memory, two of them are on the GPU at a time. unused: in the names of
/// tensors that may be there though nobody asks for them.
std::unique_ptr<Denoiser> load_denoiser(std::unique_ptr<Transformer> transformer, const Component& component,
                                        at::Device device, WeightFormat format, bool offload = false,
                                        const std::vector<std::string>& unused = {});

}  // namespace sparsereel::models
