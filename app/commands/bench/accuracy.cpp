// The exact oracle, a head at a time to bound memory; see accuracy.h.
#include "app/commands/bench/accuracy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsereel::app::bench {
namespace {

at::Tensor sample_queries(int64_t tokens, int64_t rows, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  if (rows >= tokens) return at::arange(tokens, options);
  const at::Tensor offsets = at::rand({rows}, at::kDouble);
  const double stretch = static_cast<double>(tokens) / static_cast<double>(rows);
  const at::Tensor queries = ((at::arange(rows, at::kDouble) + offsets) * stretch).to(at::kLong);
  return queries.clamp_max(tokens - 1).to(device);
}

}  // namespace

ExactRows exact_attention(const Inputs& inputs, int64_t rows, bool causal) {
  const int64_t batch = inputs.q.size(0), tokens = inputs.q.size(1), heads = inputs.q.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(inputs.q.size(3)));
  ExactRows exact;
  exact.queries = sample_queries(tokens, rows, inputs.q.device());
  const at::Tensor q = inputs.q.index_select(1, exact.queries).to(at::kDouble);
  exact.out = at::empty_like(q);
  at::Tensor hidden;
  if (causal) hidden = at::arange(tokens, exact.queries.options()).unsqueeze(0) > exact.queries.unsqueeze(1);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto head = [&](const at::Tensor& t) { return t.select(0, b).select(1, h).to(at::kDouble); };
      at::Tensor scores = at::matmul(head(q), head(inputs.k).t()).mul_(scale);  // [R, N]
      if (causal) scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
      exact.out.select(0, b).select(1, h).copy_(at::matmul(at::softmax(scores, 1), head(inputs.v)));
    }
  }
  return exact;
}

Accuracy compare(const at::Tensor& out, const ExactRows& exact) {
  const at::Tensor got = out.index_select(1, exact.queries).to(at::kDouble);
  const at::Tensor& expected = exact.out;
  const double size = expected.abs().sum().item<double>();
  const double error = (got - expected).abs().sum().item<double>();
  const double norms = got.norm().item<double>() * expected.norm().item<double>();
  const double product = (got * expected).sum().item<double>();
  return {.relative_l1 = error / size, .cosine = product / norms};
}

}  // namespace sparsereel::app::bench
