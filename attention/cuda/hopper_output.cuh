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
  static_assert(part_floats(D) == kConsumers * (kOutputs + 2), "room for a part");

 public:
  float value[kOutputs];  // element i belongs to row (i / 2) % 2; the last four sum P

  /// sums: float4 [kOutputs / 4][consumers] in shared memory.
  __device__ Output(const Problem& p, const Buffers& buffers, uint8_t* sums)
      : p_(p), buffers_(buffers), shared_sums_(sums) {}

  __device__ void start() {
    saved_ = false;
    clear();
  }

  __device__ void hold() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) ptx::hold(value[i]);
  }

  __device__ void scale(const float (&alpha)[2]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) value[i] *= alpha[i / 2 % 2];
    if (!saved_) return;
    float4* sums = sums_of(ptx::thread());
#pragma unroll 1
    for (int i = 0; i < kOutputs / 4; ++i) {
      float4& sum = sums[i * kConsumers];
      sum = make_float4(sum.x * alpha[0], sum.y * alpha[0], sum.z * alpha[1], sum.w * alpha[1]);
    }
  }

  /// Moves O into the fp32 sums; the next P.V starts from zero.
  __device__ void promote() {
    float4* sums = sums_of(ptx::thread());
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i) {
      if (saved_) add(i, sums[i * kConsumers]);
      sums[i * kConsumers] = make_float4(value[4 * i], value[4 * i + 1], value[4 * i + 2], value[4 * i + 3]);
    }
    saved_ = true;
    clear();
  }

  /// After it all of O is in `value`.
  __device__ void add_saved() {
    if (!saved_) return;
    const float4* sums = sums_of(ptx::thread());
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i) add(i, sums[i * kConsumers]);
  }

  /// Divides by the row sums and writes the tile's rows.
  __device__ void write(const TileIndex& tile, const float (&shift)[2]) const {
    const int thread = ptx::thread();
    write_rows(tile, shift, thread / 32, thread % 32);
  }

  /// For add_parts().
  __device__ void leave_part(int slot, const float (&shift)[2]) const {
    const int thread = ptx::thread();
    float4* to = part(slot, thread);
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i)
      to[i * kConsumers] = make_float4(value[4 * i], value[4 * i + 1], value[4 * i + 2], value[4 * i + 3]);
    *shift_of(slot, thread) = make_float2(shift[0], shift[1]);
  }

  /// O is the sum of the parts in slots [first, last], with a common shift.
  __device__ void add_parts(int first, int last, float (&shift)[2]) {
    const int thread = ptx::thread();
    shift[0] = shift[1] = INFINITY;
    for (int slot = first; slot <= last; ++slot) {
      const float2 its = *shift_of(slot, thread);
      shift[0] = fminf(shift[0], its.x);
      shift[1] = fminf(shift[1], its.y);
    }
    clear();
    for (int slot = first; slot <= last; ++slot) {
      const float2 its = *shift_of(slot, thread);
      const float factor[2] = {exp2f(shift[0] - its.x), exp2f(shift[1] - its.y)};
      const float4* from = part(slot, thread);
#pragma unroll
      for (int i = 0; i < kOutputs / 4; ++i) {
        const float4 four = from[i * kConsumers];
        add(i, make_float4(four.x * factor[0], four.y * factor[0], four.z * factor[1], four.w * factor[1]));
      }
    }
  }

 private:
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) value[i] = 0;
  }

  __device__ float4* sums_of(int thread) const {
    return reinterpret_cast<float4*>(shared_sums_) + thread;
  }

  __device__ void add(int i, const float4& saved) {
    value[4 * i] += saved.x;
    value[4 * i + 1] += saved.y;
    value[4 * i + 2] += saved.z;
    value[4 * i + 3] += saved.w;
  }

  __device__ float4* part(int slot, int thread) const {
    return reinterpret_cast<float4*>(buffers_.parts + static_cast<int64_t>(slot) * part_floats(D)) + thread;
  }

  __device__ float2* shift_of(int slot, int thread) const {
    return reinterpret_cast<float2*>(part(slot, 0) + kOutputs / 4 * kConsumers) + thread;
  }

  /// Rows are put together in the warp's share of the sums' memory, which is free now, so that V's scales are read and
  /// rows leave in 16-byte pieces: the accumulators' own layout would take 8 rows for every 128 bytes.
  __device__ void write_rows(const TileIndex& tile, const float (&shift)[2], int warp, int lane) const {
    constexpr int kPieces = D / 8;             // of 8 elements in a row; a lane has the same one in all its rows
    constexpr int kRowsAtOnce = 32 / kPieces;  // of the warp's 16
    const int column = lane % kPieces * 8, first = tile.tile * T::kRows + warp * 16;
    alignas(16) float scale[8], centre[8];
    load(buffers_.v_scale + static_cast<int64_t>(tile.bh) * D + column, scale);
    load(buffers_.v_centre + static_cast<int64_t>(tile.bh) * D + column, centre);
    float inverse[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float sum = value[D / 2 + 2 * row] + value[D / 2 + 2 * row + 1];
      sum += __shfl_xor_sync(~0U, sum, 1);
      sum += __shfl_xor_sync(~0U, sum, 2);
      inverse[row] = sum > 0 ? __fdividef(1.0F, sum) : 0.0F;
      const int query = first + lane / 4 + 8 * row;
      if (p_.lse != nullptr && lane % 4 == 0 && query < p_.queries) write_lse(tile, query, shift[row], sum);
    }
    __syncwarp();
    uint8_t* staged = shared_sums_ + warp * 512;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
#pragma unroll
      for (int row = 0; row < 2; ++row)
        *reinterpret_cast<float2*>(staged + place(lane / 4 + 8 * row, 2 * i + lane % 4 / 2) + lane % 2 * 8) =
            make_float2(value[4 * i + 2 * row], value[4 * i + 2 * row + 1]);
    }
    __syncwarp();
    uint16_t* out = static_cast<uint16_t*>(p_.out.data) + tile.bh / p_.heads * p_.out.batch_stride +
                    tile.bh % p_.heads * p_.out.head_stride + (first + lane / kPieces) * p_.out.token_stride + column;
    const int rows = column < p_.head_dim ? p_.queries - first - lane / kPieces : 0;
#pragma unroll
    for (int r = 0; r < 16; r += kRowsAtOnce) {
      const float factor = __shfl_sync(~0U, inverse[r / 8], (r + lane / kPieces) % 8 * 4);
      alignas(16) float x[8];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float4*>(x + 4 * half) =
            *reinterpret_cast<const float4*>(staged + place(r + lane / kPieces, column / 4 + half));
#pragma unroll
      for (int c = 0; c < 8; ++c) x[c] = fmaf(x[c] * factor, scale[c], factor == 0 ? 0.0F : centre[c]);
      if (r < rows)
        *reinterpret_cast<uint4*>(out) =
            make_uint4(pack_pair(x[0], x[1]), pack_pair(x[2], x[3]), pack_pair(x[4], x[5]), pack_pair(x[6], x[7]));
      out += kRowsAtOnce * p_.out.token_stride;
    }
    __syncwarp();
  }

  __device__ static void load(const float* from, float (&x)[8]) {
    *reinterpret_cast<float4*>(x) = __ldg(reinterpret_cast<const float4*>(from));
    *reinterpret_cast<float4*>(x + 4) = __ldg(reinterpret_cast<const float4*>(from) + 1);
  }

  /// Offset of 16 bytes of row r (of the warp's 16) in the sums' memory, swizzled against bank conflicts. The warp owns
  /// 512 bytes of every kConsumers * 16.
  __device__ static int place(int r, int chunk) {
    constexpr int kRowBytes = 4 * D, kRowsTogether = 512 / kRowBytes;
    return r / kRowsTogether * (kConsumers * 16) + r % kRowsTogether * kRowBytes + (chunk ^ (r & 7)) * 16;
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
    const int64_t at = static_cast<int64_t>(tile.bh) * p_.queries + query;
    p_.lse[at] = sum > 0 ? kLn2 * (log2f(sum) - shift) + buffers_.q_dot_mean[at] : -INFINITY;
  }

  const Problem& p_;
  const Buffers& buffers_;
  uint8_t* const shared_sums_;
  bool saved_;  // the fp32 sums hold something
};

}  // namespace sparsereel::attention::cuda::hopper
