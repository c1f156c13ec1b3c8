// Balances the channels of q and k before they are rounded to 8 bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "attention/cpu/quantize_constants.h"

namespace sparsereel::attention::cpu {

/// Leading queries of a batch entry that balance_channels() looks at. Those of self-attention end where its keys do:
/// the rest is padding, which must not change what is rounded.
inline int64_t balanced_queries(int64_t queries, int64_t keys, int64_t key_length) {
  return queries == keys ? key_length : queries;
}

/// What a channel of q is multiplied with, and that of k divided by, so that both have the same root mean square:
///   s_d = sqrt(rms k_d / rms q_d).
/// Scores do not change, but a scale that many channels share then serves those best that count most in them: what
/// rounding adds to the scores goes with max_d |q_d| |k| + max_d |k_d| |q|, and a channel that is loud in k alone, as a
/// few of a trained model's are, no longer sets that maximum for all. SmoothQuant's migration (arXiv 2211.10438) with
/// alpha = 1 / 2, by root mean squares in place of maxima.
///
/// Where several heads of q share one of k, its record serves them all, and q's mean square is that of them together.
///
/// squares: of each channel, mean or sum over the tokens, of k less its mean; of both alike up to a factor. Channels
/// below kLeastBalanced of the head's largest count as so large. 1 where there is nothing to divide by.
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
