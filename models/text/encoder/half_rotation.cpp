// Computes and applies rotary tables.
#include "models/text/encoder/half_rotation.h"

#include <ATen/ATen.h>

#include <vector>

namespace sparsereel::models {

at::Tensor rotary_frequencies(int64_t dim, double theta) {
  const at::Tensor powers = at::arange(0, dim, 2, at::kFloat) / static_cast<double>(dim);
  return at::pow(theta, powers).reciprocal();
}

HalfRotation half_rotation(const at::Tensor& angles, const at::TensorOptions& options) {
  const at::Tensor both = at::cat({angles, angles}, 1).unsqueeze(1);
  return {both.cos().to(options), both.sin().to(options)};
}

at::Tensor rotated_halves(const at::Tensor& x, const HalfRotation& rotation) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return x * rotation.cos + at::cat({-halves[1], halves[0]}, -1) * rotation.sin;
}

}  // namespace sparsereel::models
