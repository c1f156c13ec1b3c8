// The sinusoidal embedding of timesteps and the two-layer perceptron on top of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/layers/linear.h"

namespace sparsereel::models {

/// Returns the sinusoids (Vaswani et al., arXiv 1706.03762, 3.5) of timesteps [B]: fp32 [B, channels], sines then
/// cosines, or cosines first with flip_sin_to_cos. With half = channels / 2, frequency i is 10000^(-i / (half -
/// freq_shift)).
at::Tensor timestep_sinusoids(const at::Tensor& timesteps, int64_t channels, bool flip_sin_to_cos, double freq_shift);

struct TimestepEmbedding {
  Linear linear_1;  // [time_embed_dim, channels]
  Linear linear_2;  // [time_embed_dim, time_embed_dim]

  /// Lists `name`.linear_1 and `name`.linear_2.
  void weights(const Visit& visit, const std::string& name, int64_t time_embed_dim, int64_t channels) {
    linear_1.weights(visit, name + ".linear_1", time_embed_dim, channels);
    linear_2.weights(visit, name + ".linear_2", time_embed_dim, time_embed_dim);
  }
};

/// Returns linear_2(silu(linear_1(sinusoids))): [B, time_embed_dim] for sinusoids [B, channels] in the model's dtype.
at::Tensor embed_timesteps(const at::Tensor& sinusoids, const TimestepEmbedding& weights);

}  // namespace sparsereel::models
