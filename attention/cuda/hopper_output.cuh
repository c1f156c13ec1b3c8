// O of the Hopper kernel: the tensor core's accumulators of two rows, the fp32 sums behind them, and the way out.
#pragma once

#include "attention/cuda/hopper_tile.cuh"

namespace sparsereel::attention::cuda::hopper {

/// "shift" is that of a row's weights, log2 units: P = 2^(score + shift), so O and its row sums carry the factor
/// 2^shift.
template <typename T>
class Output {
  static constexpr int D = T::D, kOutputs = T::kOutputs;
  static constexpr int kConsumers = 128 * T::kWarpgroups;

 public:
  float value[kOutputs];  // element i belongs to row (i / 2) % 2; the last four sum P

  __device__ Output(const Problem& p, const Buffers& buffers, uint8_t* shared)
      : p_(p),
        buffers_(buffers),
        shared_(shared),
        sums_(reinterpret_cast<float4*>(shared + T::kSums) + threadIdx.x),
        lane_(static_cast<int>(threadIdx.x) % 32),
        row_(static_cast<int>(threadIdx.x) / 32 * 16 + lane_ / 4) {}

  __device__ void start(const TileIndex& tile) {
    saved_ = false;
    clear();
    prefetch(tile);
  }

  __device__ void hold() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) ptx::hold(value[i]);
  }

  __device__ void scale(const float (&alpha)[2]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) value[i] *= alpha[i / 2 % 2];
    if (!saved_) return;
#pragma unroll 1
    for (int i = 0; i < kOutputs / 4; ++i) {
      float4& sum = sums_[i * kConsumers];
      sum = make_float4(sum.x * alpha[0], sum.y * alpha[0], sum.z * alpha[1], sum.w * alpha[1]);
    }
  }

  /// Moves O into the fp32 sums; the next P.V starts from zero.
  __device__ void promote() {
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i) {
      if (saved_) add_saved(i);
      sums_[i * kConsumers] = make_float4(value[4 * i], value[4 * i + 1], value[4 * i + 2], value[4 * i + 3]);
    }
    saved_ = true;
    clear();
  }

  /// Divides by the row sums and writes the tile's rows.
  __device__ void finish(const TileIndex& tile, const float (&shift)[2]) {
    if (saved_) {
#pragma unroll
      for (int i = 0; i < kOutputs / 4; ++i) add_saved(i);
    }
    write_rows(tile, shift);
  }

 private:
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) value[i] = 0;
  }

  /// What the epilogue will read of V's scales, a line of 128 bytes a lane.
  __device__ void prefetch(const TileIndex& tile) const {
    const float* from = lane_ % 2 == 0 ? buffers_.v_scale : buffers_.v_centre;
    const float* line = from + static_cast<int64_t>(tile.bh) * D + lane_ / 2 % (D / 32) * 32;
    asm volatile("prefetch.global.L1 [%0];" ::"l"(line));
  }

  __device__ void add_saved(int i) {
    const float4 saved = sums_[i * kConsumers];
    value[4 * i] += saved.x;
    value[4 * i + 1] += saved.y;
    value[4 * i + 2] += saved.z;
    value[4 * i + 3] += saved.w;
  }

  /// Rows are put together in the warp's share of the sums' memory, which is free now, so that they leave in 16-byte
  /// pieces: the accumulators' own layout would take 8 rows for every 128 bytes.
  __device__ void write_rows(const TileIndex& tile, const float (&shift)[2]) const {
    float inverse[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float sum = value[D / 2 + 2 * row] + value[D / 2 + 2 * row + 1];
      sum += __shfl_xor_sync(~0U, sum, 1);
      sum += __shfl_xor_sync(~0U, sum, 2);
      inverse[row] = sum > 0 ? 1.0F / sum : 0.0F;
      write_lse(tile, tile.tile * T::kRows + row_ + 8 * row, shift[row], sum);
    }
    const float* scales = buffers_.v_scale + static_cast<int64_t>(tile.bh) * D + lane_ % 4 * 2;
    const float* centres = buffers_.v_centre + static_cast<int64_t>(tile.bh) * D + lane_ % 4 * 2;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const float2 scale = __ldg(reinterpret_cast<const float2*>(scales + 8 * i));
      const float2 centre = __ldg(reinterpret_cast<const float2*>(centres + 8 * i));
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const bool empty = inverse[row] == 0;
        const float a = fmaf(value[4 * i + 2 * row] * inverse[row], scale.x, empty ? 0.0F : centre.x);
        const float b = fmaf(value[4 * i + 2 * row + 1] * inverse[row], scale.y, empty ? 0.0F : centre.y);
        *reinterpret_cast<uint32_t*>(piece(lane_ / 4 + 8 * row, i) + lane_ % 4 * 4) = pack_pair(a, b);
      }
    }
    __syncwarp();
    constexpr int kPieces = D / 8;  // of 16 bytes in a row
    const int first = tile.tile * T::kRows + static_cast<int>(threadIdx.x) / 32 * 16, i = lane_ % kPieces;
    uint16_t* out = static_cast<uint16_t*>(p_.out.data) + tile.bh / p_.heads * p_.out.batch_stride +
                    tile.bh % p_.heads * p_.out.head_stride + 8 * i;
#pragma unroll
    for (int r = lane_ / kPieces; r < 16; r += 32 / kPieces)
      if (first + r < p_.queries && 8 * i < p_.head_dim)
        *reinterpret_cast<uint4*>(out + (first + r) * p_.out.token_stride) = *reinterpret_cast<uint4*>(piece(r, i));
    __syncwarp();
  }

  /// 16 bytes of row r (of the warp's 16) in the sums' memory, swizzled against bank conflicts. The warp owns 512 bytes
  /// of every kConsumers * 16.
  __device__ uint8_t* piece(int r, int i) const {
    constexpr int kRowBytes = 2 * D, kRowsTogether = 512 / kRowBytes;
    return shared_ + T::kSums + (r / kRowsTogether) * kConsumers * 16 + static_cast<int>(threadIdx.x) / 32 * 512 +
           r % kRowsTogether * kRowBytes + (i ^ (r & 7)) * 16;
  }

  /// Two elements of the output; a in the low half.
  __device__ uint32_t pack_pair(float a, float b) const {
    uint32_t packed;
    if (p_.element == Element::bf16) {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(b), "f"(a));
    } else {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(b), "f"(a));
    }
    return packed;
  }

  __device__ void write_lse(const TileIndex& tile, int query, float shift, float sum) const {
    if (p_.lse == nullptr || lane_ % 4 != 0 || query >= p_.queries) return;
    const int64_t at = static_cast<int64_t>(tile.bh) * p_.queries + query;
    p_.lse[at] = sum > 0 ? kLn2 * (log2f(sum) - shift) + buffers_.q_dot_mean[at] : -INFINITY;
  }

  const Problem& p_;
  const Buffers& buffers_;
  uint8_t* const shared_;
  float4* const sums_;
  const int lane_;
  const int row_;  // of the tile; this thread's other row is 8 further
  bool saved_;     // sums_ holds something
};

}  // namespace sparsereel::attention::cuda::hopper
