// Reads rows of q, k and v of any element type and applies the prologue to them. Each thread has eight elements of a
// row.
#pragma once

#include "attention/cuda/kernel_params.h"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/records.h"
#include "attention/cuda/scratch.h"

namespace sparsereel::attention::cuda {

/// Returns the sum over the D / 8 neighboring lanes that hold one row.
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

/// Loads the thread's eight columns of rows of one (batch, head). Columns past head_dim are zeros. Each row is aligned
/// to 16 bytes and has a multiple of eight elements. Consecutive rows are less than 4 GB apart.
template <typename T>
class Rows {
 public:
  __device__ Rows(const View& view, int b, int h, int head_dim, int column) {
    const T* rows = static_cast<const T*>(view.data) + b * view.batch_stride + h * view.head_stride;
    const bool real = column < head_dim;
    first_ = real ? reinterpret_cast<const uint8_t*>(rows + column) : reinterpret_cast<const uint8_t*>(&kZeroPiece);
    token_bytes_ = real ? static_cast<uint32_t>(view.token_stride * sizeof(T)) : 0;
  }

  /// Loads the thread's columns of a token. The code has no branch, so that many loads run at once, and computes the
  /// address in one instruction.
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

/// Returns the moments (mean and 1 / deviation) that launch_moments() wrote for the tokens of batch entry b: those of q
/// if is_q is true, otherwise those of k. Returns null if there is no norm across heads.
__device__ inline const float* moments_of(const KernelParams& p, const float* moments, bool is_q, int b) {
  if (moments == nullptr) return nullptr;
  const int64_t first = is_q ? static_cast<int64_t>(b) * p.queries
                             : static_cast<int64_t>(p.batch) * p.queries + static_cast<int64_t>(b) * p.keys;
  return moments + 2 * first;
}

/// Loads eight floats; `from` is aligned to 16 bytes.
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

__device__ inline void zero(float (&x)[kLaneElements]) {
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) x[i] = 0;
}

/// The data that the prologue needs for one token. It is loaded early, so that many loads run at once.
struct TokenPart {
  /// Cosines and sines of four pairs. If the elements of a pair are neighbors (2i and 2i + 1), these are the pairs of
  /// all eight elements of the lane. If a pair consists of elements i and i + head_dim / 2, these are the pairs of the
  /// lane's first four elements. If angles differ by head, this is the token's position instead.
  uint4 pairs;
  float inverse;  // 1 / deviation of the token; only for rms_across_rotary
};

/// The steps of a prologue. A kernel for `any` decides for each row which steps to run. Kernels for the other values
/// need no such branch, so they are faster.
enum class RowSteps {
  none,
  norm,               // per head
  norm_rotary,        // norm per head, then a rotary embedding of pairs (2i, 2i + 1)
  rms_across_rotary,  // RMS norm across heads, without a bias, then the same embedding
  by_part,            // norm weights for text tokens, or rotary angles that differ by head
  any                 // any other prologue
};

inline RowSteps row_steps(const Prologue& prologue) {
  if (prologue.is_by_part()) return RowSteps::by_part;
  const bool rotary = prologue.rotary_pairs != nullptr;
  if (prologue.norm == Prologue::Norm::none) return rotary ? RowSteps::any : RowSteps::none;
  if (rotary && !prologue.interleaved) return RowSteps::any;
  if (!prologue.across_heads) return rotary ? RowSteps::norm_rotary : RowSteps::norm;
  const bool biased = prologue.q_bias != nullptr || prologue.k_bias != nullptr;
  return prologue.norm == Prologue::Norm::rms && rotary && !biased ? RowSteps::rms_across_rotary : RowSteps::any;
}

/// Applies the prologue of q or of k to rows of one (batch, head), which are held as eight elements per lane. Lanes
/// past head_dim hold zeros, which stay zeros because their weights and biases are 0. The speed is limited by the
/// number of instructions, so addresses take one instruction per token, and lanes never take different branches.
template <int D, RowSteps kSteps = RowSteps::any>
class RowPrologue {
  static constexpr bool kAny = kSteps == RowSteps::any, kByPart = kSteps == RowSteps::by_part;

 public:
  /// Prepares the prologue of a head's rows. moments: [tokens][2], mean and 1 / deviation of this batch entry, if the
  /// norm is across heads.
  __device__ RowPrologue(const Prologue& prologue, const RowNormOf<const float*>& norm, const float* moments, int h,
                         int head_dim, int column)
      : p_(prologue),
        moments_(moments),
        real_(column < head_dim),
        inverse_size_(1.0F / static_cast<float>(head_dim)),
        centers_(prologue.norm == Prologue::Norm::layer),
        pairs_(static_cast<const uint8_t*>(prologue.rotary_pairs)),
        pair_bytes_(static_cast<uint32_t>(
            kByPart && prologue.rotary_frequencies != nullptr ? 4 * sizeof(float) : head_dim / 2 * sizeof(__half2))) {
    const int half = head_dim / 2;
    if (real_ && (has_rotary() || (kByPart && prologue.rotary_pairs != nullptr))) {
      partner_ = column < half ? column + half : column - half;
      partner_sign_ = column < half ? -1.0F : 1.0F;
      pairs_ += sizeof(__half2) * static_cast<size_t>(prologue.interleaved ? column / 2 : min(column, partner_));
    }
    const int first = (prologue.across_heads ? h * head_dim : 0) + (real_ ? column : 0);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      weight_[i] = 1;
      bias_[i] = 0;
    }
    if (norm.weight != nullptr) load_row(norm.weight + first, weight_);
    if (norm.bias != nullptr) load_row(norm.bias + first, bias_);
    if (!real_) {
      zero(weight_);
      zero(bias_);
    }
    if constexpr (kByPart) {
      text_weight_ = real_ && norm.text_weight != nullptr ? norm.text_weight + first : nullptr;
      if (prologue.rotary_frequencies == nullptr) return;
      pairs_ = reinterpret_cast<const uint8_t*>(prologue.rotary_positions);
      load_frequencies(prologue.rotary_frequencies + static_cast<int64_t>(h) * 3 * half + (real_ ? column : 0) / 2,
                       half);
    }
  }

  __device__ TokenPart load(int token) const {
    TokenPart part{};
    if (has_rotary()) part.pairs = __ldg(pairs_of(token));
    if constexpr (kByPart) {
      if (token < p_.rotary_tokens && pairs_ != nullptr) part.pairs = __ldg(pairs_of(token));
    }
    if constexpr (kSteps == RowSteps::rms_across_rotary) part.inverse = __ldg(moments_ + 2 * token + 1);
    return part;
  }

  /// Applies the prologue to the row of a token. All lanes of the row call this together.
  __device__ void apply(int token, const TokenPart& part, float (&x)[kLaneElements]) const {
    if constexpr (kByPart) {
      const Moments moments = p_.norm == Prologue::Norm::none ? Moments{0, 1} : moments_of(x);
      return token < p_.rotary_tokens ? finish_video(moments, part.pairs, x) : finish_text(moments, x);
    }
    if constexpr (kSteps == RowSteps::rms_across_rotary) {
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) x[i] *= part.inverse * weight_[i];
    } else if (!kAny || p_.norm != Prologue::Norm::none) {
      normalize(token, x);
    }
    if (has_rotary()) rotate(token, part.pairs, x);
  }

 private:
  struct Moments {
    float mean, inverse;  // inverse: 1 / deviation
  };

  __device__ bool has_rotary() const {
    return kSteps == RowSteps::norm_rotary || kSteps == RowSteps::rms_across_rotary ||
           (kAny && p_.rotary_pairs != nullptr);
  }

  __device__ void normalize(int token, float (&x)[kLaneElements]) const {
    const bool across = kAny && p_.across_heads;
    scale_and_shift(across ? Moments{moments_[2 * token], moments_[2 * token + 1]} : moments_of(x), weight_, x);
  }

  /// Returns the moments over this head's row alone.
  __device__ Moments moments_of(const float (&x)[kLaneElements]) const {
    float sum = 0, square = 0;
    if (!kByPart || centers_) {
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) sum += x[i];
      sum = row_sum<D>(sum);
    }
    const float mean = centers_ ? sum * inverse_size_ : 0.0F;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) square += (x[i] - mean) * (x[i] - mean);
    return {mean, rsqrtf(fmaf(row_sum<D>(real_ ? square : 0.0F), inverse_size_, p_.eps))};
  }

  __device__ void scale_and_shift(const Moments& moments, const float (&weight)[kLaneElements],
                                  float (&x)[kLaneElements]) const {
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) x[i] = (x[i] - moments.mean) * moments.inverse * weight[i] + bias_[i];
  }

  // finish_video() and finish_text() contain no shuffles, so lanes with different tokens may take different branches.

  __device__ void finish_video(const Moments& moments, uint4 part, float (&x)[kLaneElements]) const {
    scale_and_shift(moments, weight_, x);
    if (p_.rotary_frequencies == nullptr && p_.rotary_pairs == nullptr) return;
#pragma unroll
    for (int i = 0; i < kLaneElements; i += 2)
      turn(p_.rotary_frequencies == nullptr ? turn_of(part, i / 2) : turn_at(part, i / 2), x[i], x[i + 1]);
  }

  /// Finishes a row of text. The weights of text are seldom used, so they are read from memory each time instead of
  /// being kept in registers.
  __device__ void finish_text(const Moments& moments, float (&x)[kLaneElements]) const {
    if (text_weight_ == nullptr) return scale_and_shift(moments, weight_, x);
    float weight[kLaneElements];
    load_row(text_weight_, weight);
    scale_and_shift(moments, weight, x);
  }

  /// Loads the frequencies of this lane's pairs, and converts them from radians to full turns (1 turn = 2 pi) per unit
  /// of a coordinate. `from` points to the frequencies of the first coordinate; those of each next coordinate are
  /// `axis` floats further.
  __device__ void load_frequencies(const float* from, int axis) {
    constexpr float kTurnsOfRadian = 0.15915494309189535F;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const float4 four = *reinterpret_cast<const float4*>(from + i * axis);
      frequencies_[i][0] = four.x * kTurnsOfRadian;
      frequencies_[i][1] = four.y * kTurnsOfRadian;
      frequencies_[i][2] = four.z * kTurnsOfRadian;
      frequencies_[i][3] = four.w * kTurnsOfRadian;
    }
  }

  /// Returns the cosine and sine of a pair's angle at a position. Whole turns are removed first, because the fast
  /// functions are accurate (absolute error 2^-21) only for angles up to pi, and the angles of far tokens are many
  /// turns.
  __device__ float2 turn_at(const uint4& position, int pair) const {
    constexpr float kRound = 12582912.0F, kRadiansOfTurn = 6.283185307179586F;  // kRound is 1.5 * 2^23
    const float turns = fmaf(
        __uint_as_float(position.x), frequencies_[0][pair],
        fmaf(__uint_as_float(position.y), frequencies_[1][pair], __uint_as_float(position.z) * frequencies_[2][pair]));
    const float angle = (turns - ((turns + kRound) - kRound)) * kRadiansOfTurn;
    return {__cosf(angle), __sinf(angle)};
  }

  __device__ static void turn(float2 by, float& first, float& second) {
    const float before = second;
    second = before * by.x + first * by.y;
    first = first * by.x - before * by.y;
  }

  /// Applies RoFormer's rotation (arXiv 2104.09864).
  __device__ void rotate(int token, uint4 pairs, float (&x)[kLaneElements]) const {
    const bool rotated = token < p_.rotary_tokens;
    if (!kAny || p_.interleaved) {
      keep_unless(rotated, pairs);
#pragma unroll
      for (int i = 0; i < kLaneElements; i += 2) turn(turn_of(pairs, i / 2), x[i], x[i + 1]);
      return;
    }
    // In pairs (i, i + head_dim / 2), one other lane holds the partners of all elements of this lane, because head_dim
    // is a multiple of 16.
    constexpr int kRowLanes = D / kLaneElements;
    const int lane = static_cast<int>(threadIdx.x) % 32 / kRowLanes * kRowLanes + partner_ / kLaneElements;
    uint4 rest = __ldg(pairs_of(token) + 1);
    keep_unless(rotated, pairs);
    keep_unless(rotated, rest);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      const float2 by = turn_of(i < 4 ? pairs : rest, i % 4);
      x[i] = x[i] * by.x + partner_sign_ * __shfl_sync(~0U, x[i], lane) * by.y;
    }
  }

  /// Sets the cosines to 1 and the sines to 0 if the token is not rotated.
  __device__ static void keep_unless(bool rotated, uint4& pairs) {
    constexpr uint32_t kNoTurn = 0x00003C00;
    if (!rotated) pairs = make_uint4(kNoTurn, kNoTurn, kNoTurn, kNoTurn);
  }

  __device__ static float2 turn_of(const uint4& pairs, int pair) {
    return __half22float2(reinterpret_cast<const __half2*>(&pairs)[pair]);
  }

  __device__ const uint4* pairs_of(int token) const {
    const auto row = static_cast<uint32_t>(min(token, p_.rotary_tokens - 1));
    return reinterpret_cast<const uint4*>(pairs_ + static_cast<uint64_t>(row) * pair_bytes_);
  }

  const Prologue& p_;
  float weight_[kLaneElements], bias_[kLaneElements];
  const float* moments_;
  const bool real_;
  int partner_ = 0;  // first column of the partners of this lane's elements, if they are half a row away
  float partner_sign_ = 0;
  const float inverse_size_;  // 1 / head_dim
  const bool centers_;        // true for layer norm
  const uint8_t* pairs_;      // the cosines and sines of this lane's pairs for token 0
  const uint32_t pair_bytes_;
  const float* text_weight_ = nullptr;  // this lane's weights for text tokens; null if these use weight_
  float frequencies_[kByPart ? 3 : 1][kLaneElements / 2] = {};  // [coordinate][pair], in turns per unit
};

}  // namespace sparsereel::attention::cuda
