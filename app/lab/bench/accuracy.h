// Compares results with exact attention, which is computed in fp64 for a sample of the queries.
#pragma once

#include <ATen/core/Tensor.h>

#include "app/lab/measure/inputs.h"

namespace sparsereel::app::bench {

/// Exact attention for R sampled queries.
struct ExactRows {
  at::Tensor queries;  // int64 [R]: ascending positions in the sequence; the same for every head
  at::Tensor out;      // fp64 [B, R, H, D]
};

/// Returns softmax(q k^T D^-0.5) v in fp64 for `rows` queries: the sequence is divided into `rows` equal stretches, and
/// one query is drawn from each. If the sequence has at most `rows` queries, all are used. Uses the inputs as they are
/// rounded to their dtype, so this rounding does not count as an error. If `causal`, query i sees the keys up to i.
ExactRows exact_attention(const Inputs& inputs, int64_t rows, bool causal);

/// Sums over the elements of outputs o and of exact outputs o*, of one call or of several.
struct Accuracy {
  double error = 0, size = 0;                               // sum|o - o*|, sum|o*|
  double product = 0, got_square = 0, expected_square = 0;  // o . o*, |o|^2, |o*|^2

  double relative_l1() const { return error / size; }
  double cosine() const;
  Accuracy& operator+=(const Accuracy& other);
};

/// Compares the sampled queries of `out`, [B, N, H, D], with the exact result.
Accuracy compare(const at::Tensor& out, const ExactRows& exact);

}  // namespace sparsereel::app::bench
