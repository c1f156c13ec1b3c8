// Code that the tests of attend() on a CPU share: it makes inputs, calls attend() and compares results.
#pragma once

#include <ATen/ATen.h>

#include "attention/attention.h"

namespace sparsereel::attention {

/// q, k and v as views of one packed projection [B, N, 3, H, D], as the models pass them.
struct Projection {
  at::Tensor q, k, v;
  explicit Projection(const at::Tensor& qkv) : q(qkv.select(2, 0)), k(qkv.select(2, 1)), v(qkv.select(2, 2)) {}
};

/// Noise of shape [2, tokens, 3, heads, head_dim]. It is the same in every test.
struct Inputs : Projection {
  explicit Inputs(int64_t tokens, int64_t head_dim = 64, at::ScalarType dtype = at::kFloat, int64_t heads = 3)
      : Projection(noise({2, tokens, 3, heads, head_dim}).to(dtype)) {}

 private:
  static at::Tensor noise(at::IntArrayRef shape) {
    at::manual_seed(5);
    return at::randn(shape);
  }
};

/// Returns x with only the first `heads` heads of k and v.
inline Inputs with_fewer(Inputs x, int64_t heads) {
  x.k = x.k.narrow(2, 0, heads);
  x.v = x.v.narrow(2, 0, heads);
  return x;
}

/// Returns x with the heads of k and v repeated, one for each head of q.
inline Inputs repeated(Inputs x) {
  const int64_t group = x.q.size(2) / x.k.size(2);
  x.k = x.k.repeat_interleave(group, 2);
  x.v = x.v.repeat_interleave(group, 2);
  return x;
}

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
