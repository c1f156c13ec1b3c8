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
/// holds a multiple of eight elements; neighbours are less than 4 GB apart.
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

/// from starts on 16 bytes.
__device__ inline void load_row(const float* from, float (&x)[kLaneElements]) {
#pragma unroll
  for (int i = 0; i < kLaneElements; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    x[i] = four.x;
    x[i + 1] = four.y;
    x[i + 2] = four.z;
    x[i + 3] = four.w;
  }
}

/// Cosines and sines of four pairs, as they come from memory: all of eight elements of which pairs are neighbours, half
/// of what elements i and i + head_dim / 2 need.
struct Angles {
  uint4 pairs;
};

/// What kernels do to a row before anything else.
enum class RowSteps { none, norm, rotary };  // rotary: after the norm, if there is one

inline RowSteps row_steps(const Prologue& prologue) {
  if (prologue.rotary != nullptr) return RowSteps::rotary;
  return prologue.norm != Prologue::Norm::none ? RowSteps::norm : RowSteps::none;
}

/// The prologue of q or of k for one (batch, head), on rows held as eight elements a lane.
template <int D, RowSteps kSteps = RowSteps::rotary>
class RowPrologue {
  static constexpr bool kRotary = kSteps == RowSteps::rotary;

 public:
  /// moments: [tokens][2] mean and 1 / deviation of this batch entry, where the norm goes across heads.
  __device__ RowPrologue(const Prologue& prologue, const float* weight, const float* bias, const float* moments, int h,
                         int head_dim, int column)
      : p_(prologue),
        moments_(moments),
        head_dim_(head_dim),
        column_(column),
        inverse_size_(1.0F / static_cast<float>(head_dim)) {
    const int first = (prologue.across_heads ? h * head_dim : 0) + (real() ? column : 0);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      weight_[i] = 1;
      bias_[i] = 0;
    }
    if (weight != nullptr) load_row(weight + first, weight_);
    if (bias != nullptr) load_row(bias + first, bias_);
  }

  /// What apply() needs from memory first, to be asked for early: without a branch that differs between lanes, many
  /// loads run at once.
  __device__ Angles angles(int token) const {
    return kRotary && p_.rotary != nullptr ? Angles{__ldg(pairs_of(token))} : Angles{};
  }

  /// All lanes of the row call this together.
  __device__ void apply(int token, const Angles& angles, float (&x)[kLaneElements]) const {
    if (p_.norm != Prologue::Norm::none) normalise(token, x);
    if (kRotary && p_.rotary != nullptr) rotate(token, angles, x);
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
  __device__ void rotate(int token, const Angles& angles, float (&x)[kLaneElements]) const {
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
    if (p_.interleaved) {
      rotate_by<2>(angles, 0, x, other);
    } else {
      rotate_by<1>(angles, 0, x, other);
      rotate_by<1>({__ldg(pairs_of(token) + 1)}, kLaneElements / 2, x, other);
    }
  }

  __device__ const uint4* pairs_of(int token) const {
    const int half = head_dim_ / 2, column = real() ? column_ : 0;
    const auto* row = static_cast<const __half2*>(p_.rotary) + min(token, p_.rotary_tokens - 1) * half;
    return reinterpret_cast<const uint4*>(row + (p_.interleaved ? column / 2 : column % half));
  }

  /// Four angles, each for the next kShared elements.
  template <int kShared>
  __device__ static void rotate_by(const Angles& angles, int first, float (&x)[kLaneElements],
                                   const float (&other)[kLaneElements]) {
    const auto* pair = reinterpret_cast<const __half2*>(&angles.pairs);
#pragma unroll
    for (int i = 0; i < 4 * kShared; ++i) {
      const float2 turn = __half22float2(pair[i / kShared]);
      x[first + i] = x[first + i] * turn.x + other[first + i] * turn.y;
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
