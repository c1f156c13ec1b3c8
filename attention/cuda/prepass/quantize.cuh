// Common parts of the three kernels that quantize Q, K and V. A CTA makes one record: 64 tokens of one head.
#pragma once

#include <cfloat>
#include <type_traits>

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/kernels.h"
#include "attention/cuda/rows.cuh"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {

constexpr int kQuantizeThreads = 128;
constexpr int kQuantizeWarps = kQuantizeThreads / 32;
constexpr int kWarpRows = kRecord / kQuantizeWarps;  // number of rows of a record that each warp handles

/// The rows and columns of the CTA's record that a thread handles. grid: heads (first, so that neighboring CTAs read
/// neighboring memory), blocks, batch.
template <int D>
struct RecordThread {
  static constexpr int kRowLanes = D / kLaneElements;
  static constexpr int kRowsAtOnce = 32 / kRowLanes;
  static constexpr int kRounds = kWarpRows / kRowsAtOnce;
  static constexpr int kTogether = 4;  // number of rounds whose loads start together

  int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.x), block = static_cast<int>(blockIdx.y);
  int warp = static_cast<int>(threadIdx.x) / 32;
  int column = static_cast<int>(threadIdx.x) % kRowLanes * kLaneElements;
  int first_row = static_cast<int>(threadIdx.x) % 32 / kRowLanes / 2 * 8 + 2 * warp +
                  static_cast<int>(threadIdx.x) % 32 / kRowLanes % 2;
  int first_offset = record_offset<D>(first_row, column);

  /// Returns the thread's row in a round. Over all rounds, warp w has exactly the keys that share one int8 scale: those
  /// with key % 8 equal to 2 w or 2 w + 1.
  __device__ int row(int round) const { return first_row + step(round); }

  /// Returns the byte offset of this thread's eight columns of row(round) in a Q or K record. The swizzle repeats every
  /// 8 rows.
  __device__ int offset(int round) const {
    return kRowsAtOnce == 1 ? record_offset<D>(row(round), column) : first_offset + step(round) * D;
  }

 private:
  __device__ static constexpr int step(int round) {
    return kRowsAtOnce == 1 ? round / 2 * 8 + round % 2 : round * kRowsAtOnce / 2 * 8;
  }
};

/// Calls f with the RowSteps of the prologue as a compile-time constant.
template <typename F>
void for_row_steps(const Prologue& prologue, const F& f) {
  switch (row_steps(prologue)) {
    case RowSteps::none:
      return f(std::integral_constant<RowSteps, RowSteps::none>());
    case RowSteps::norm:
      return f(std::integral_constant<RowSteps, RowSteps::norm>());
    case RowSteps::norm_rotary:
      return f(std::integral_constant<RowSteps, RowSteps::norm_rotary>());
    case RowSteps::rms_across_rotary:
      return f(std::integral_constant<RowSteps, RowSteps::rms_across_rotary>());
    case RowSteps::by_part:
      return f(std::integral_constant<RowSteps, RowSteps::by_part>());
    case RowSteps::any:
      return f(std::integral_constant<RowSteps, RowSteps::any>());
  }
}

inline dim3 record_grid(int heads, int blocks, int batch) {
  return {static_cast<unsigned>(heads), static_cast<unsigned>(blocks), static_cast<unsigned>(batch)};
}

/// Returns x / scale rounded to int8, for |x| <= 127 scale. Adding 1.5 * 2^23 leaves the integer in the low byte.
__device__ inline uint2 pack_int8(const float (&x)[kLaneElements], float inverse_scale) {
  uint32_t byte[kLaneElements];
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) byte[i] = __float_as_uint(fmaf(x[i], inverse_scale, 12582912.0F));
  const auto four = [&](int i) {
    return __byte_perm(__byte_perm(byte[i], byte[i + 1], 0x0040), __byte_perm(byte[i + 2], byte[i + 3], 0x0040),
                       0x5410);
  };
  return make_uint2(four(0), four(4));
}

__device__ inline float largest_of(const float (&x)[kLaneElements]) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) most = fmaxf(most, fabsf(x[i]));
  return most;
}

/// Returns the largest absolute value of the elements. Compares them in their own type, two at a time.
template <typename T>
__device__ inline float largest_of(const Packed<T>& x) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const auto* pair = reinterpret_cast<const Pair*>(x.element);
  Pair most = __habs2(pair[0]);
#pragma unroll
  for (int i = 1; i < kLaneElements / 2; ++i) most = __hmax2(most, __habs2(pair[i]));
  return fmaxf(to_float(most.x), to_float(most.y));
}

__device__ inline int square_of(uint2 int8) {
  const int low = static_cast<int>(int8.x), high = static_cast<int>(int8.y);
  return __dp4a(low, low, __dp4a(high, high, 0));
}

/// Raises *longest to an upper bound of the lengths of the CTA's rows. square: the largest of the sums of squares that
/// this lane found, each over its eight columns of a row. Non-negative floats have the same order as their bits, for
/// which there is an atomic maximum. All threads of the CTA call it together.
template <int D>
__device__ inline void note_longest(float square, float* longest) {
  __shared__ float shared[kQuantizeWarps];
#pragma unroll
  for (int lanes = D / kLaneElements; lanes < 32; lanes *= 2)
    square = fmaxf(square, __shfl_xor_sync(~0U, square, lanes));
  square = row_sum<D>(square);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = square;
  __syncthreads();
  if (threadIdx.x != 0) return;
  const float most = fmaxf(fmaxf(shared[0], shared[1]), fmaxf(shared[2], shared[3]));
  atomicMax(reinterpret_cast<int*>(longest), __float_as_int(sqrtf(most)));
}

/// Sums the rows of a record. Every lane sums its eight columns.
template <int D>
class Pool {
 public:
  /// Adds a row. weight: 1, or 0 for a row past the end.
  __device__ void add(const float (&x)[kLaneElements], float weight) {
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) sum_[i] = fmaf(x[i], weight, sum_[i]);
  }

  /// Adds the row scaled to length 1. All lanes of the row call it together.
  __device__ void add_direction(const float (&x)[kLaneElements], float weight) {
    float square = 0;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) square += x[i] * x[i];
    add(x, weight * rsqrtf(fmaxf(row_sum<D>(square), FLT_MIN)));
  }

  /// Calls put(c, factor * the sum of column c) for every column. All threads of the CTA call it together.
  template <typename Put>
  __device__ void write(float factor, const Put& put) {
    __shared__ float shared[kQuantizeWarps][D];
    constexpr int kRowLanes = D / kLaneElements;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
#pragma unroll
      for (int lanes = kRowLanes; lanes < 32; lanes *= 2) sum_[i] += __shfl_xor_sync(~0U, sum_[i], lanes);
    }
    if (lane < kRowLanes) {
#pragma unroll
      for (int i = 0; i < kLaneElements; i += 4)
        *reinterpret_cast<float4*>(&shared[warp][lane * kLaneElements + i]) =
            make_float4(sum_[i], sum_[i + 1], sum_[i + 2], sum_[i + 3]);
    }
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < D; c += kQuantizeThreads)
      put(c, (shared[0][c] + shared[1][c] + shared[2][c] + shared[3][c]) * factor);
    __syncthreads();
  }

 private:
  float sum_[kLaneElements] = {};
};

/// Computes the sums over the rows of each cell of a record, in shared memory.
template <int D>
class CellSums {
 public:
  static constexpr int kRounds = RecordThread<D>::kRounds / kBlockCells;  // rounds whose rows belong to one cell

  /// Stores the sums of a cell. sum: the sums over this thread's rows of the cell, for its eight columns; they are
  /// overwritten. All threads of the CTA call it together.
  __device__ void put(float (&sum)[kLaneElements], int cell) {
    constexpr int kRowLanes = D / kLaneElements;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int column = lane % kRowLanes * kLaneElements, count = kLaneElements;
#pragma unroll
    for (int lanes = kRowLanes; lanes < 32; lanes *= 2) {  // each of two lanes takes half of their columns
      const bool upper = (lane & lanes) != 0;
      count /= 2;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const float away = upper ? sum[i] : sum[i + count];
        sum[i] = (upper ? sum[i + count] : sum[i]) + __shfl_xor_sync(~0U, away, lanes);
      }
      column += upper ? count : 0;
    }
#pragma unroll
    for (int i = 0; i < count; ++i) part_[threadIdx.x / 32][cell][column + i] = sum[i];
  }

  /// Writes the means of all cells over the first `real` rows of the record. out: bf16 [4][D]. All threads of the CTA
  /// call it together.
  __device__ void write_means(int real, uint16_t* out) const {
    __syncthreads();
    for (int at = 2 * static_cast<int>(threadIdx.x); at < kBlockCells * D; at += 2 * kQuantizeThreads) {
      const int cell = at / D, column = at % D;
      float2 sum{};
#pragma unroll
      for (int warp = 0; warp < kQuantizeWarps; ++warp)
        sum = {sum.x + part_[warp][cell][column], sum.y + part_[warp][cell][column + 1]};
      const float share = 1.0F / static_cast<float>(max(1, min(kCell, real - cell * kCell)));
      *reinterpret_cast<__nv_bfloat162*>(out + at) = __floats2bfloat162_rn(sum.x * share, sum.y * share);
    }
  }

 private:
  float part_[kQuantizeWarps][kBlockCells][D];
};

/// Calls f<T, D>(context) for the element type and padded head_dim of the call.
#define SPARSEREEL_FOR_TYPE(context, f)                                                            \
  do {                                                                                             \
    const bool half = (context).params.element == Element::fp16;                                   \
    if ((context).sizes.D == 64) half ? f<__half, 64>(context) : f<__nv_bfloat16, 64>(context);    \
    if ((context).sizes.D == 128) half ? f<__half, 128>(context) : f<__nv_bfloat16, 128>(context); \
    if ((context).sizes.D == 256) half ? f<__half, 256>(context) : f<__nv_bfloat16, 256>(context); \
  } while (false)

}  // namespace sparsereel::attention::cuda
