// Timestep embedding. The sinusoids are computed in fp32, in the order of operations of the models' reference
// implementation.
#include "models/layers/timestep_embedding.h"

#include <ATen/ATen.h>

#include <cmath>

#include "models/layers/linear.h"

namespace sparsereel::models {

at::Tensor timestep_sinusoids(const at::Tensor& timesteps, int64_t channels, bool flip_sin_to_cos, double freq_shift) {
  const int64_t half = channels / 2;
  const at::Tensor exponent = at::arange(half, timesteps.options().dtype(at::kFloat)) * -std::log(10000.0) /
                              (static_cast<double>(half) - freq_shift);
  const at::Tensor angle = timesteps.to(at::kFloat).unsqueeze(1) * exponent.exp().unsqueeze(0);
  at::Tensor out = flip_sin_to_cos ? at::cat({angle.cos(), angle.sin()}, 1) : at::cat({angle.sin(), angle.cos()}, 1);
  return channels % 2 == 0 ? out : at::constant_pad_nd(out, {0, 1});
}

at::Tensor embed_timesteps(const at::Tensor& sinusoids, const TimestepEmbedding& weights) {
  return linear(at::silu(linear(sinusoids, weights.linear_1)), weights.linear_2);
}

}  // namespace sparsereel::models
