// The interface of an autoencoder of sound.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

class SoundVae {
 public:
  virtual ~SoundVae() = default;

  /// Decodes latents [1, rows, C] to samples, fp32 [channels, length] in [-1, 1]. The latents have the scale at which
  /// they are denoised, and the layout of TransformerInput::sound. Throws Error if their shape is wrong.
  virtual at::Tensor decode(const at::Tensor& latents) = 0;
  /// Returns how many samples of one channel one latent becomes.
  virtual int64_t samples_a_latent() const = 0;
  /// Returns the number of samples of one channel per second.
  virtual int64_t sampling_rate() const = 0;
};

}  // namespace sparsereel::models
