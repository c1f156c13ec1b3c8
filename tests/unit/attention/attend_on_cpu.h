// Code that the tests of attend() on a CPU share: inputs, the call, and the difference between results.
#pragma once

#include <ATen/ATen.h>

#include "attention/attention.h"

namespace sparsereel::attention {

/// q, k and v as views of one packed projection [B, N, 3, H, D], as the models pass them.
struct Projection {
  at::Tensor q, k, v;
  explicit Projection(const at::Tensor& qkv) : q(qkv.select(2, 0)), k(qkv.select(2, 1)), v(qkv.select(2, 2)) {}
};

inline Result run(const Projection& x, const Context& context) {
  Workspace workspace;
  return attend(x.q, x.k, x.v, context, workspace);
}

inline double max_error(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

inline double relative_l1(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kFloat) - b).abs().sum() / b.abs().sum()).item<double>();
}

}  // namespace sparsereel::attention
