// Balances the channels of q and k before they are rounded to 8 bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "attention/cpu/quantize_constants.h"

namespace sparsereel::attention::cpu {

/// Returns how many of the first queries of a batch entry balance_channels() should use. In self-attention, queries
/// past the entry's key_length are padding, which must not change how the other queries are rounded.
inline int64_t balanced_queries(int64_t queries, int64_t keys, int64_t key_length) {
  return queries == keys ? key_length : queries;
}

/// Computes the factor s_d that multiplies channel d of q and divides channel d of k, so that the channel has the same
/// root mean square in both:
/// s_d = sqrt(rms k_d / rms q_d).
/// Balancing changes only the rounding error of the scores, not the scores. All channels of a row share one scale, so
/// the error grows with max_d |q_d| |k| + max_d |k_d| |q|. In trained models a few channels are large in k alone; after
/// balancing they no longer determine max_d |k_d|. This is SmoothQuant's migration (arXiv 2211.10438) with alpha = 1/2,
/// using root mean squares in place of maxima.
/// If several heads of q share a head of k, q's mean square is taken over all these heads, because the same quantized
/// keys serve all of them.
/// q_squares and k_squares hold the sum (or the average) over the tokens of each channel's squares. k's mean must
/// already be subtracted from k. Multiplying both arrays by the same number does not change the result. Squares below
/// kLeastBalanced times the head's largest square are raised to that value. A factor that would not be positive and
/// finite becomes 1.
inline void balance_channels(std::span<const double> q_squares, std::span<const double> k_squares,
                             std::span<float> balance) {
  const auto largest = [](std::span<const double> squares) {
    return *std::max_element(squares.begin(), squares.end());
  };
  const double least_q = kLeastBalanced * largest(q_squares), least_k = kLeastBalanced * largest(k_squares);
  for (size_t d = 0; d < balance.size(); ++d) {
    const double ratio = std::max(k_squares[d], least_k) / std::max(q_squares[d], least_q);
    const double s = std::sqrt(std::sqrt(ratio));
    balance[d] = s > 0 && std::isfinite(s) ? static_cast<float>(s) : 1.0F;
  }
}

}  // namespace sparsereel::attention::cpu
