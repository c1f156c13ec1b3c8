// Reading rows of q, k and v: any element type, with the prologue applied, eight elements a thread.
#pragma once

#include "attention/cuda/launch.h"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/records.h"
#include "attention/cuda/scratch.h"

namespace sparsereel::attention::cuda {

/// Sum over the D / 8 neighbouring lanes that hold one row.
template <int D>
__device__ inline float row_sum(float x) {
#pragma unroll
  for (int lanes = D / kLaneElements / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0U, x, lanes);
  return x;
}

template <int D>
__device__ inline float row_max(float x) {
#pragma unroll
  for (int lanes = D / kLaneElements / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, lanes));
  return x;
}

__device__ const uint4 kZeroPiece{};

/// Eight columns of the rows of one (batch, head) of a tensor, zeros past head_dim. Each row starts on 16 bytes and
/// holds a multiple of eight elements; two of them are less than 4 GB apart.
template <typename T>
class Rows {
 public:
  __device__ Rows(const View& view, int b, int h, int head_dim, int column) {
    const T* rows = static_cast<const T*>(view.data) + b * view.batch_stride + h * view.head_stride;
    const bool real = column < head_dim;
    first_ = real ? reinterpret_cast<const uint8_t*>(rows + column) : reinterpret_cast<const uint8_t*>(&kZeroPiece);
    token_bytes_ = real ? static_cast<uint32_t>(view.token_stride * sizeof(T)) : 0;
  }

  /// Without a branch, so that many loads run at once, and with one instruction for the address.
  __device__ Packed<T> load(int token) const {
    Packed<T> x;
    reinterpret_cast<uint4&>(x) = __ldg(
        reinterpret_cast<const uint4*>(first_ + static_cast<uint64_t>(static_cast<uint32_t>(token)) * token_bytes_));
    return x;
  }

 private:
  const uint8_t* first_;
  uint32_t token_bytes_;
};

/// Mean and 1 / deviation of the tokens of q, or of k, of batch entry b; null without a norm across heads.
__device__ inline const float* moments_of(const Problem& p, const Buffers& buffers, bool is_q, int b) {
  if (buffers.token_moments == nullptr) return nullptr;
  const int64_t first = is_q ? static_cast<int64_t>(b) * p.queries
                             : static_cast<int64_t>(p.batch) * p.queries + static_cast<int64_t>(b) * p.keys;
  return buffers.token_moments + 2 * first;
}

/// The prologue of q or of k for one (batch, head), on rows held as eight elements a lane.
template <int D>
class RowPrologue {
 public:
  /// moments: [tokens][2] mean and 1 / deviation of this batch entry, where the norm goes across heads.
  __device__ RowPrologue(const Prologue& prologue, const float* weight, const float* bias, const float* moments, int h,
                         int head_dim, int column)
      : p_(prologue),
        moments_(moments),
        head_dim_(head_dim),
        column_(column),
        inverse_size_(1.0F / static_cast<float>(head_dim)) {
    const int first = (prologue.across_heads ? h * head_dim : 0) + column;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      weight_[i] = weight != nullptr && real() ? weight[first + i] : 1.0F;
      bias_[i] = bias != nullptr && real() ? bias[first + i] : 0.0F;
    }
  }

  /// All lanes of the row call this together.
  __device__ void apply(int token, float (&x)[kLaneElements]) const {
    if (p_.norm != Prologue::Norm::none) normalise(token, x);
    if (p_.rotary != nullptr) rotate(token, x);
  }

 private:
  __device__ bool real() const {
    return column_ < head_dim_;
  }

  __device__ void normalise(int token, float (&x)[kLaneElements]) const {
    float mean = 0, inverse = 0;
    if (p_.across_heads) {
      mean = moments_[2 * token];
      inverse = moments_[2 * token + 1];
    } else {
      if (p_.norm == Prologue::Norm::layer) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kLaneElements; ++i) sum += x[i];
        mean = row_sum<D>(sum) * inverse_size_;
      }
      float square = 0;
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) square += (x[i] - mean) * (x[i] - mean);
      inverse = rsqrtf(fmaf(row_sum<D>(real() ? square : 0.0F), inverse_size_, p_.eps));
    }
    if (!real()) return;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) x[i] = (x[i] - mean) * inverse * weight_[i] + bias_[i];
  }

  /// RoFormer's rotation (arXiv 2104.09864).
  __device__ void rotate(int token, float (&x)[kLaneElements]) const {
    float other[kLaneElements];  // the second element of each pair, with its sign
    if (p_.interleaved) {
#pragma unroll
      for (int i = 0; i < kLaneElements; i += 2) {
        other[i] = -x[i + 1];
        other[i + 1] = x[i];
      }
    } else {
      partner_half(x, other);
    }
    if (token >= p_.rotary_tokens || !real()) return;
    const int half = head_dim_ / 2;
    const __half2* pairs = static_cast<const __half2*>(p_.rotary) + static_cast<int64_t>(token) * half;
    if (p_.interleaved) {
      rotate_by<2>(pairs + column_ / 2, x, other);
    } else {
      rotate_by<1>(pairs + column_ % half, x, other);
    }
  }

  /// kShared: elements that one pair's angle serves.
  template <int kShared>
  __device__ static void rotate_by(const __half2* pairs, float (&x)[kLaneElements],
                                   const float (&other)[kLaneElements]) {
#pragma unroll
    for (int i = 0; i < kLaneElements; i += 4 * kShared) {
      const uint4 four = __ldg(reinterpret_cast<const uint4*>(pairs + i / kShared));
      const auto* pair = reinterpret_cast<const __half2*>(&four);
#pragma unroll
      for (int c = i; c < i + 4 * kShared; ++c) {
        const float2 turn = __half22float2(pair[(c - i) / kShared]);
        x[c] = x[c] * turn.x + other[c] * turn.y;
      }
    }
  }

  /// other = (-x[i + head_dim / 2], x[i - head_dim / 2]); head_dim is a multiple of 16, so one other lane holds them.
  __device__ void partner_half(const float (&x)[kLaneElements], float (&other)[kLaneElements]) const {
    const int half = head_dim_ / 2, row_lanes = D / kLaneElements;
    const bool first = column_ < half;
    const int partner = real() ? (first ? column_ + half : column_ - half) / kLaneElements : 0;
    const int lane = static_cast<int>(threadIdx.x) % 32 / row_lanes * row_lanes + partner;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      const float found = __shfl_sync(~0U, x[i], lane);
      other[i] = first ? -found : found;
    }
  }

  const Prologue& p_;
  float weight_[kLaneElements], bias_[kLaneElements];
  const float* moments_;
  const int head_dim_;
  const int column_;
  const float inverse_size_;
};

}  // namespace sparsereel::attention::cuda
