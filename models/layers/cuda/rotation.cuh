// Rotates groups of a row's columns (layers/rotation.h) in registers. A warp holds 256 consecutive columns, eight in
// each lane.
#pragma once

#include "attention/cuda/packed.cuh"
#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {

using attention::cuda::kLaneElements;

static_assert(kMaxRotation == 32 * kLaneElements);

__device__ inline float from_lane(float x, int exclusive_or) {
  return __shfl_xor_sync(0xFFFFFFFFU, x, exclusive_or);
}

/// Rotates four numbers whose column numbers differ in only one base-4 digit. Each becomes half of the sum of all four,
/// minus its opposite. a and d are opposites, and so are b and c.
__device__ inline void rotate_four(float& a, float& b, float& c, float& d) {
  const float half = 0.5F * ((a + b) + (c + d)), y[] = {half - d, half - c, half - b, half - a};
  a = y[0], b = y[1], c = y[2], d = y[3];
}

/// Does what rotate_four() does if the four numbers are in four lanes, whose lane numbers differ in the bits `low` and
/// 2 * low.
__device__ inline void rotate_among_lanes(float (&x)[kLaneElements], int low) {
#pragma unroll
  for (float& own : x) {
    const float opposite = from_lane(own, 3 * low), pair = own + from_lane(own, low);
    own = 0.5F * (pair + from_lane(pair, 2 * low)) - opposite;
  }
}

/// Multiplies each group of `group` columns (16, 64 or 256) by the regular Hadamard matrix. All lanes of a warp must
/// call this together. The result has the same bits as rotate_() on a CPU.
__device__ inline void rotate(float (&x)[kLaneElements], int group) {
  rotate_four(x[0], x[1], x[2], x[3]);
  rotate_four(x[4], x[5], x[6], x[7]);
  // The second base-4 digit: of four columns that are 4 apart, a lane holds two and the neighboring lane the other two.
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = from_lane(x[i], 1), high = from_lane(x[i + 4], 1);
    const float half = 0.5F * ((x[i] + x[i + 4]) + (low + high));
    x[i] = half - high;
    x[i + 4] = half - low;
  }
  if (group >= 64) rotate_among_lanes(x, 2);
  if (group >= 256) rotate_among_lanes(x, 8);
}

}  // namespace sparsereel::models::cuda
