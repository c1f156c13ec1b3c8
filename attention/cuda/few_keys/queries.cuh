// The work of one warp of few_keys.cu. It computes the scores of 16 queries with all keys in shared memory, and from
// these the outputs or the weights of the queries.
#pragma once

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/kernels.h"
#include "attention/cuda/mma.cuh"
#include "attention/cuda/output_scale.cuh"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/records.h"
#include "attention/cuda/rows.cuh"

namespace sparsereel::attention::cuda::few_keys {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = 16;              // number of queries that a warp computes at once
constexpr int kLongStep = 64;          // number of keys between two updates of the largest score
constexpr int kShortStep = 32;         // used instead of kLongStep if half of the last long step would be padding
constexpr float kLeastScore = -1e30F;  // maximum of a row before its first key

/// Bytes of a row of 16-bit elements in shared memory. The padding puts eight consecutive rows into different banks.
template <int D>
constexpr int kRowBytes = 2 * D + 16;

/// The addresses of the parts of a CTA's shared memory.
template <int D>
struct Layout {
  uint32_t keys, values, queries, bias;

  __device__ Layout(uint32_t base, int padded_keys)
      : keys(base),
        values(keys + static_cast<uint32_t>(padded_keys * kRowBytes<D>)),
        queries(values + static_cast<uint32_t>(padded_keys * kRowBytes<D>)),
        bias(queries + kWarps * kRows * kRowBytes<D>) {}
};

template <int D>
constexpr int shared_bytes(int padded_keys) {
  return (2 * padded_keys + kWarps * kRows) * kRowBytes<D> + padded_keys * static_cast<int>(sizeof(float));
}

__host__ __device__ constexpr int padded(int keys, int step) {
  return ceil_div(keys, step) * step;
}

template <typename T>
__device__ const T* row_of(const View& view, int b, int token, int h) {
  return static_cast<const T*>(view.data) + b * view.batch_stride + token * view.token_stride + h * view.head_stride;
}

/// Returns 1 / deviation of a token, or 1 if there is no norm.
__device__ inline float inverse_of(const float* moments, int token) {
  return moments == nullptr ? 1 : moments[2 * token + 1];
}

/// Computes the outputs of 16 queries of one head at a time. If kWeights is true, computes their attention weights for
/// the kStepKeys keys instead. All lanes of a warp must call each function together. mma.cuh explains how lanes hold
/// fragments.
template <typename T, int D, int kStepKeys, bool kWeights>
class Queries {
 public:
  __device__ Queries(const KernelParams& p, const float* moments, int b, int h, const Layout<D>& layout)
      : p_(p),
        moments_(moments_of(p, moments, true, b)),
        b_(b),
        h_(h),
        layout_(layout),
        mine_(layout.queries + warp() * kRows * kRowBytes<D>) {}

  /// Starts to copy the 16 query rows from `first` on. In place of rows past the end, the last row is copied again.
  __device__ void prefetch(int first) const {
    constexpr int kPieces = D / kLaneElements;
#pragma unroll
    for (int i = lane(); i < kRows * kPieces; i += 32) {
      const T* from = row_of<T>(p_.q, b_, min(first + i / kPieces, p_.queries - 1), h_) + i % kPieces * kLaneElements;
      copy_async(mine_ + i / kPieces * kRowBytes<D> + i % kPieces * 16, from);
    }
    commit_copies();
  }

  /// Waits for the prefetched rows, which begin at `first`. Computes and writes their results. Prefetches the rows from
  /// `next` on as soon as there is room for them, if `next` is below `end`.
  __device__ void attend(int first, int next, int end, const float* bias) {
    wait_copies<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      load_matrices(q_[i], mine_ + lane() % 16 * kRowBytes<D> + lane() / 16 * 16 + i * 32);
    __syncwarp();
    if (next < end) prefetch(next);
    begin(first);
    float s[kTiles][4];
    if constexpr (kWeights) {
      weigh(0, bias, s);
      write_weights(first, s);
    } else {
      for (int key = 0; key < p_.keys; key += kStepKeys) {
        weigh(key, bias, s);
        add_values(key, s);
      }
      write(first);
    }
  }

 private:
  static constexpr int kTiles = kStepKeys / 8;

  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  static __device__ int warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }

  /// Resets the state for new rows. This lane's rows are first + lane / 4 and first + lane / 4 + 8.
  __device__ void begin(int first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(first + lane() / 4 + 8 * r, p_.queries - 1);
      factor_[r] = inverse_of(moments_, row) * p_.scale * kLog2e;
      most_[r] = kLeastScore;
      sum_[r] = 0;
    }
#pragma unroll
    for (int i = 0; i < D / 8; ++i) out_[i][0] = out_[i][1] = out_[i][2] = out_[i][3] = 0;
  }

  /// Writes the weights of a step's keys to s. They are not yet divided by their sum.
  __device__ void weigh(int first_key, const float* bias, float (&s)[kTiles][4]) {
    scores(first_key, s);
    float most[2] = {most_[0], most_[1]};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const float2 more = *reinterpret_cast<const float2*>(bias + first_key + 8 * i + lane() % 4 * 2);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = fmaf(s[i][j], factor_[j / 2], j % 2 == 0 ? more.x : more.y);
        most[j / 2] = fmaxf(most[j / 2], s[i][j]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = fmaxf(most[r], __shfl_xor_sync(~0U, most[r], 1));
      most[r] = fmaxf(most[r], __shfl_xor_sync(~0U, most[r], 2));
      const float less = fast_exp2(most_[r] - most[r]);
      most_[r] = most[r];
      sum_[r] *= less;
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        out_[i][2 * r] *= less;
        out_[i][2 * r + 1] *= less;
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = fast_exp2(s[i][j] - most_[j / 2]);
        sum_[j / 2] += s[i][j];
      }
    }
  }

  __device__ void scores(int first_key, float (&s)[kTiles][4]) const {
    const uint32_t row = layout_.keys + (first_key + lane() % 8) * kRowBytes<D> + lane() / 8 * 16;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
      for (int d = 0; d < D / 32; ++d) {
        uint32_t k[4];
        load_matrices(k, row + i * 8 * kRowBytes<D> + d * 64);
        multiply(s[i], q_[2 * d], k[0], k[1]);
        multiply(s[i], q_[2 * d + 1], k[2], k[3]);
      }
    }
  }

  __device__ void add_values(int first_key, const float (&s)[kTiles][4]) {
    const uint32_t row = layout_.values + (first_key + lane() % 16) * kRowBytes<D> + lane() / 16 * 16;
#pragma unroll
    for (int i = 0; i < kTiles; i += 2) {
      const uint32_t weights[4] = {pair(s[i][0], s[i][1]), pair(s[i][2], s[i][3]), pair(s[i + 1][0], s[i + 1][1]),
                                   pair(s[i + 1][2], s[i + 1][3])};
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32_t v[4];
        load_matrices_transposed(v, row + i * 8 * kRowBytes<D> + d * 32);
        multiply(out_[2 * d], weights, v[0], v[1]);
        multiply(out_[2 * d + 1], weights, v[2], v[3]);
      }
    }
  }

  __device__ void write(int first) const {
    const float inverse_scale = inverse_out_scale(p_, b_);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float inverse = inverse_scale * inverse_sum(r);
      const int row = first + lane() / 4 + 8 * r;
      if (row >= p_.queries) continue;
#pragma unroll
      for (int i = 0; i < D / 32; ++i) {
        float x[kLaneElements];
#pragma unroll
        for (int j = 0; j < kLaneElements; ++j) x[j] = out_[4 * i + j / 2][2 * r + j % 2] * inverse;
        const int column = 32 * i + lane() % 4 * kLaneElements;
        p_.out_scale == nullptr ? store_packed(out_row<T>(row) + column, pack<T>(x))
                                : store_e4m3(out_row<uint8_t>(row) + column, x);
      }
    }
  }

  /// Writes the weights of the rows. Of every eight keys, a lane has two neighboring ones.
  __device__ void write_weights(int first, const float (&s)[kTiles][4]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float inverse = inverse_sum(r) * (p_.out_scale == nullptr ? 1.0F : kE4m3Max);
      const int row = first + lane() / 4 + 8 * r;
      if (row >= p_.queries) continue;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (8 * i >= p_.keys) break;
        const int key = 8 * i + lane() % 4 * 2;
        const float a = s[i][2 * r] * inverse, b = s[i][2 * r + 1] * inverse;
        if (p_.out_scale == nullptr) {
          *reinterpret_cast<uint32_t*>(out_row<T>(row) + key) = pair(a, b);
        } else {
          *reinterpret_cast<uint16_t*>(out_row<uint8_t>(row) + key) = static_cast<uint16_t>(e4m3x4(a, b, 0, 0));
        }
      }
    }
  }

  /// Returns 1 / the sum of the weights of row r, or 0 if the sum is 0.
  __device__ float inverse_sum(int r) const {
    float sum = sum_[r] + __shfl_xor_sync(~0U, sum_[r], 1);
    sum += __shfl_xor_sync(~0U, sum, 2);
    return sum > 0 ? 1 / sum : 0;
  }

  template <typename Out>
  __device__ Out* out_row(int row) const {
    return const_cast<Out*>(row_of<Out>(p_.out, b_, row, h_));
  }

  static __device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_16(T{}, c, a, b0, b1);
  }
  static __device__ void multiply_16(__half, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_half(c, a, b0, b1);
  }
  static __device__ void multiply_16(__nv_bfloat16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_bfloat16(c, a, b0, b1);
  }
  static __device__ uint32_t pair(float low, float high) {
    T two[2];
    from_float(low, two[0]);
    from_float(high, two[1]);
    return reinterpret_cast<const uint32_t&>(two);
  }

  const KernelParams& p_;
  const float* moments_;
  const int b_, h_;
  const Layout<D>& layout_;
  const uint32_t mine_;
  uint32_t q_[D / 16][4];
  float out_[D / 8][4];
  float factor_[2], most_[2], sum_[2];
};

}  // namespace sparsereel::attention::cuda::few_keys
