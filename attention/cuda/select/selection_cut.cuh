// Decides which candidate blocks of a tile are kept: a given number of them, or as many as hold a given share of the
// mass. Each warp decides for one tile. Candidates are compared by their sort keys, which the code calls keys:
// ordered() of a score. A sort key of 0 means that the block is not a candidate, because it is always kept.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention/cuda/scratch.h"
#include "attention/cuda/warp.cuh"

namespace sparsereel::attention::cuda {

/// Maps floats to unsigned integers that have the same order, with NaN above all others. No float maps to 0.
__device__ inline uint32_t ordered(float x) {
  if (isnan(x)) return ~0U;
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

__device__ inline float from_ordered(uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

/// Statistics of a tile's scores. They give a first guess of the threshold above which a given number of candidates
/// lies.
struct Spread {
  int count;
  float mean, deviation;
};

/// Returns the bin of a candidate in the high bits, and its finer bin within that bin in the low bits. Logarithms from
/// -160 to 96 are divided into bins of 1/8, and each of these into finer bins of 1/16384.
__device__ inline uint32_t budget_code(uint32_t key) {
  constexpr float kLeast = -160, kPerUnit = 8 * kBins;
  const float code = (from_ordered(key) - kLeast) * kPerUnit;
  if (!(code < static_cast<float>(kBins * kBins))) return kBins * kBins - 1;  // also for NaN
  return static_cast<uint32_t>(fmaxf(code, 0.0F));
}

/// The largest sort key of a tile and the block that has it; the first such block if there are several. packed() has
/// the same order.
struct Best {
  uint32_t key = 0, place = 0;

  Best() = default;
  __device__ explicit Best(unsigned long long packed)
      : key(static_cast<uint32_t>(packed >> 32)), place(static_cast<uint32_t>(packed)) {}

  __device__ unsigned long long packed() const { return static_cast<unsigned long long>(key) << 32 | place; }
  __device__ int block() const { return static_cast<int>(~place); }
  __device__ void see(uint32_t other, int at) {  // `at` grows from call to call
    if (other > key) {
      key = other;
      place = ~static_cast<uint32_t>(at);
    }
  }
};

/// Data about a tile for the warps that rank its blocks.
struct RankedTile {
  int candidates;
  unsigned long long best;
};

/// The candidates of one tile: their sort keys in shared or global memory. One warp reads them.
struct Candidates {
  const uint32_t* keys;
  int count;
  bool coded = false;  // true if thresholds are compared with budget_code() of the sort keys instead of the sort keys

  __device__ uint32_t rank(uint32_t key) const { return coded ? budget_code(key) : key; }

  template <typename F>
  __device__ void each(const F& f) const {
#pragma unroll 4
    for (int j = static_cast<int>(threadIdx.x) % 32; j < count; j += 32) f(keys[j]);
  }

  __device__ int count_from(uint32_t threshold) const {
    int found = 0;
    each([&](uint32_t key) { found += key >= threshold ? 1 : 0; });
    return __reduce_add_sync(~0U, found);
  }

  __device__ Spread spread() const {
    int found = 0;
    float sum = 0, squares = 0;
    each([&](uint32_t key) {
      const float score = key == 0 ? 0.0F : from_ordered(key);
      found += key == 0 ? 0 : 1;
      sum += score;
      squares += score * score;
    });
    found = __reduce_add_sync(~0U, found);
    const float mean = __fdividef(warp_sum(sum), static_cast<float>(max(found, 1)));
    const float square = __fdividef(warp_sum(squares), static_cast<float>(max(found, 1)));
    return {found, mean, sqrtf(fmaxf(square - mean * mean, 0.0F))};
  }

  __device__ uint32_t largest() const {
    uint32_t most = 0;
    each([&](uint32_t key) { most = max(most, key); });
    return __reduce_max_sync(~0U, most);
  }

  /// Returns the sum of exp(score - top) over the candidates whose sort key is at least `threshold`.
  __device__ float mass_from(uint32_t threshold, float top) const {
    float mass = 0;
    each([&](uint32_t key) { mass += key >= threshold ? __expf(from_ordered(key) - top) : 0.0F; });
    return warp_sum(mass);
  }
};

/// Keeps every candidate above `threshold`, and the first `ties` of the candidates that equal it (kAllTies: all of
/// these).
struct Cut {
  uint32_t threshold;
  int ties;
};

constexpr int kAllTies = 1 << 30;  // keeps all candidates that equal the threshold

/// Returns the cut that keeps the `wanted` largest candidates. There must be more than `wanted`. First guesses a
/// threshold as if scores were normally distributed, and then interpolates between the two thresholds with the nearest
/// counts. Usually a few rounds are enough. If they are not, because of ties or another distribution, bisection
/// follows.
__device__ inline Cut cut_by_count(const Candidates& candidates, int wanted, const Spread& spread) {
  constexpr int kGuesses = 10;
  uint32_t low = 1, high = ~0U;  // more than `wanted` are at or above `low`, fewer than `wanted` at or above `high`
  int above_low = spread.count, above_high = candidates.count_from(high);
  if (above_high >= wanted) return {high, wanted};  // enough candidates are NaN
  const float z = normcdfinvf(1 - __fdividef(static_cast<float>(wanted), static_cast<float>(spread.count)));
  const float slope = spread.deviation / (static_cast<float>(spread.count) * 0.39894228F * __expf(-0.5F * z * z));
  float guess = spread.mean + z * spread.deviation;
  bool low_counted = false, high_counted = false;
  for (int round = 0; high - low > 1; ++round) {
    uint32_t threshold = ordered(guess);
    if (round >= kGuesses || threshold <= low || threshold >= high) threshold = low + (high - low) / 2;
    const int count = candidates.count_from(threshold);
    if (count == wanted) return {threshold, kAllTies};
    if (count > wanted) {
      low = threshold;
      above_low = count;
      low_counted = true;
    } else {
      high = threshold;
      above_high = count;
      high_counted = true;
    }
    if (low_counted && high_counted) {
      const float part = __fdividef(static_cast<float>(above_low - wanted), static_cast<float>(above_low - above_high));
      guess = from_ordered(low) + part * (from_ordered(high) - from_ordered(low));
    } else {
      guess = from_ordered(threshold) + 1.2F * static_cast<float>(count - wanted) * slope;
    }
  }
  return {low, wanted - above_high};
}

/// Returns the cut that keeps the fewest candidates whose masses sum to at least `wanted`, which is in units of e^top.
__device__ inline Cut cut_at_mass(const Candidates& candidates, float wanted, float top) {
  uint32_t threshold = 0;
  for (uint32_t bit = 0x80000000U; bit != 0; bit >>= 1)
    if (candidates.mass_from(threshold | bit, top) >= wanted) threshold |= bit;
  const float missing = wanted - candidates.mass_from(threshold + 1, top);
  return {threshold, max(1, static_cast<int>(ceilf(missing / __expf(from_ordered(threshold) - top))))};
}

/// Returns the cut that keeps the fewest candidates that hold the share `share` of the total mass.
__device__ inline Cut cut_by_mass(const Candidates& candidates, float share) {
  const float top = from_ordered(candidates.largest());
  if (!isfinite(top)) return {1, kAllTies};
  return cut_at_mass(candidates, share * candidates.mass_from(1, top), top);
}

/// Returns the cut that keeps the fewest candidates such that the masses of the others sum to at most `rest`.
__device__ inline Cut cut_by_rest(const Candidates& candidates, float rest) {
  const float top = from_ordered(candidates.largest());
  if (!isfinite(top) || !isfinite(rest)) return {1, kAllTies};
  const float wanted = candidates.mass_from(1, top) - rest * expf(-top);
  return wanted > 0 ? cut_at_mass(candidates, wanted, top) : Cut{~0U, 0};
}

/// Returns the mass of the candidates that a cut drops.
__device__ inline float rest_of(const Candidates& candidates, const Cut& cut) {
  int ties = 0;
  float rest = 0, tied = 0;
  candidates.each([&](uint32_t key) {
    if (key == 0) return;
    const uint32_t rank = candidates.rank(key);
    const float mass = __expf(from_ordered(key));
    ties += rank == cut.threshold ? 1 : 0;
    tied = rank == cut.threshold ? mass : tied;
    rest += rank < cut.threshold ? mass : 0.0F;
  });
  ties = max(__reduce_add_sync(~0U, ties) - cut.ties, 0);
  for (int lanes = 16; lanes > 0; lanes /= 2) tied = fmaxf(tied, __shfl_xor_sync(~0U, tied, lanes));
  return warp_sum(rest) + static_cast<float>(ties) * tied;
}

}  // namespace sparsereel::attention::cuda
