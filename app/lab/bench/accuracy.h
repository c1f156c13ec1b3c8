// Compares results with full attention, computed exactly in fp64 for a sample of the queries.
#pragma once

#include <ATen/core/Tensor.h>

#include "app/lab/measure/inputs.h"

namespace sparsereel::app::bench {

struct ExactRows {
  at::Tensor queries;  // int64 [R], ascending positions in the sequence, equal for every head
  at::Tensor out;      // fp64 [B, R, H, D]
};

/// Returns softmax(q k^T D^-0.5) v in fp64 for `rows` queries: the sequence is divided into `rows` equal stretches, and
/// one query is drawn from each. If the sequence has at most `rows` queries, all are used. The inputs keep the rounding
/// of their dtype. `causal`: query i sees keys up to i.
ExactRows exact_attention(const Inputs& inputs, int64_t rows, bool causal);

/// Sums over outputs o and exact outputs o*, of one call or of several.
struct Accuracy {
  double error = 0, size = 0;                               // sum|o - o*|, sum|o*|
  double product = 0, got_square = 0, expected_square = 0;  // o . o*, |o|^2, |o*|^2

  double relative_l1() const { return error / size; }
  double cosine() const;
  Accuracy& operator+=(const Accuracy& other);
};

/// Compares `out`, [B, N, H, D], with the exact rows.
Accuracy compare(const at::Tensor& out, const ExactRows& exact);

}  // namespace sparsereel::app::bench
