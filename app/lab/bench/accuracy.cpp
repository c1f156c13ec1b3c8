// Computes exact attention one head at a time, to limit memory.
#include "app/lab/bench/accuracy.h"

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
  constexpr int64_t most = 2048;  // queries computed at once
  const int64_t batch = inputs.q.size(0), tokens = inputs.q.size(1), heads = inputs.q.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(inputs.q.size(3)));
  ExactRows exact;
  exact.queries = sample_queries(tokens, rows, inputs.q.device());
  const at::Tensor q = inputs.q.index_select(1, exact.queries).to(at::kDouble);
  exact.out = at::empty_like(q);
  const at::Tensor positions = at::arange(tokens, exact.queries.options()).unsqueeze(0);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto head = [&](const at::Tensor& t) {  // several heads of q may share a head of k and v
        return t.select(0, b).select(1, h * t.size(2) / heads).to(at::kDouble);
      };
      const at::Tensor queries = head(q), keys = head(inputs.k).t(), values = head(inputs.v);
      for (int64_t first = 0; first < queries.size(0); first += most) {
        const int64_t count = std::min(most, queries.size(0) - first);
        at::Tensor scores = at::matmul(queries.narrow(0, first, count), keys).mul_(scale);  // [count, N]
        if (causal)
          scores.masked_fill_(positions > exact.queries.narrow(0, first, count).unsqueeze(1),
                              -std::numeric_limits<double>::infinity());
        const at::Tensor out = at::matmul(at::softmax(scores, 1), values);
        exact.out.select(0, b).select(1, h).narrow(0, first, count).copy_(out);
      }
    }
  }
  return exact;
}

double Accuracy::cosine() const {
  return product / std::sqrt(got_square * expected_square);
}

Accuracy& Accuracy::operator+=(const Accuracy& other) {
  error += other.error;
  size += other.size;
  product += other.product;
  got_square += other.got_square;
  expected_square += other.expected_square;
  return *this;
}

Accuracy compare(const at::Tensor& out, const ExactRows& exact) {
  const at::Tensor got = out.index_select(1, exact.queries).to(at::kDouble);
  const at::Tensor& expected = exact.out;
  const auto sum = [](const at::Tensor& values) { return values.sum().item<double>(); };
  return {.error = sum((got - expected).abs()),
          .size = sum(expected.abs()),
          .product = sum(got * expected),
          .got_square = sum(got.square()),
          .expected_square = sum(expected.square())};
}

}  // namespace sparsereel::app::bench
