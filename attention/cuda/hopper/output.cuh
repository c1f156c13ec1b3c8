// O of the Hopper kernel: holds the tensor core's accumulators of a thread's two rows, adds the part of O that comes
// from V's means, and writes the output.
//
// The mean over the record's 64 keys is subtracted from each V record, so O = sum P (V - mean) + sum (sum of P in the
// block) mean. The second sum is a matrix product in fp16, computed for kMeans blocks at a time: the sums of P in the
// blocks, times the means. The rows of ones produce the sums of P, which are stored ("noted") in shared memory. The
// producer loads the means.
#pragma once

#include "attention/cuda/hopper/tile.cuh"
#include "attention/cuda/output_scale.cuh"

namespace sparsereel::attention::cuda::hopper {

/// The output rows of a thread. The weights of a row are P = 2^(score + shift), in log2 units, so O and the row sums
/// have the factor 2^shift.
template <typename T>
class Output {
  static constexpr int D = T::D, kOutputs = T::kOutputs;
  static constexpr int kSums = T::kChannels / 2;  // first accumulator that sums P
  static constexpr int kConsumers = 128 * T::kWarpgroups, kWarpBytes = 16 * T::kRowBytes;
  static_assert(part_floats(D) >= kConsumers * (kOutputs + 2), "a part does not fit into its room");

 public:
  float value[kOutputs];  // element i belongs to row (i / 2) % 2; elements kSums and kSums + 2 hold the sums of P of
                          // the last subtile

  /// `memory`: if add_means() is never called, only memory.rows is used.
  __device__ Output(const KernelParams& p, const Sizes& sizes, const Buffers& buffers, OutputMemory<T>& memory)
      : p_(p), sizes_(sizes), buffers_(buffers), memory_(memory), rows_(memory.rows) {
    const int thread = ptx::thread(), row = thread % 32 / 4;
    my_sums_ = sums_of(thread / 32, row) + my_record(thread) * 4;
  }

  __device__ void start() {
    row_sum_[0] = row_sum_[1] = 0;
    clear();
  }

  __device__ void hold() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) ptx::hold(value[i]);
  }

  __device__ void scale(const float (&alpha)[2]) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) value[i] *= alpha[i / 2 % 2];
    row_sum_[0] *= alpha[0];
    row_sum_[1] *= alpha[1];
    scale_noted(alpha);
  }

  /// Returns the record of a subtile to which the thread's sums of P belong.
  __device__ static int my_record(int lane) {
    return T::kSubtileRecords == 1 ? 0 : lane % 4 / 2;
  }

  /// Notes the sums of P of the subtile whose P.V is complete, adds them to the row sums, and clears them. `weight` is
  /// the number of tokens that a key of my_record() stands for: more than 1 if the key is a mean.
  __device__ void note_sums(float weight) {
    note(value[kSums], value[kSums + 2]);
    row_sum_[0] = fmaf(value[kSums], weight, row_sum_[0]);
    row_sum_[1] = fmaf(value[kSums + 2], weight, row_sum_[1]);
    ptx::clear(value[kSums]);
    ptx::clear(value[kSums + 2]);
    noted_ += T::kSubtileRecords;
  }

  __device__ bool means_due() const {
    return noted_ % T::kMeans == 0;
  }

  /// Adds to O what the subtracted means contribute for the noted blocks; there is at least one. Returns the half of
  /// the ring of means that is now free.
  __device__ int add_means() {
    const int half = (noted_ - 1) / T::kMeans;
    for (; noted_ % 16 != 0; noted_ += T::kSubtileRecords) note(0, 0);
    __syncwarp();
    const int thread = ptx::thread(), lane = thread % 32, steps = (noted_ - half * T::kMeans) / 16;
    const uint8_t* sums = rows_ + sums_of(thread / 32, lane / 4) + lane % 4 * 8;
    uint32_t means = shared_address(memory_.means) + half * T::kMeanBytes + lane % 16 * T::kMeanPitch + lane / 16 * 16;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const uint2 first = *reinterpret_cast<const uint2*>(sums + step * 64);
      const uint2 second = *reinterpret_cast<const uint2*>(sums + step * 64 + 32);
      const uint32_t a[4] = {__byte_perm(first.x, first.y, 0x5410), __byte_perm(first.x, first.y, 0x7632),
                             __byte_perm(second.x, second.y, 0x5410), __byte_perm(second.x, second.y, 0x7632)};
#pragma unroll
      for (int i = 0; i < T::kChannels / 16; ++i) {
        uint32_t b[4];
        load_matrices_transposed(b, means + 32 * i);
        multiply_half(four(8 * i), a, b[0], b[1]);
        multiply_half(four(8 * i + 4), a, b[2], b[3]);
      }
      means += 16 * T::kMeanPitch;
    }
    noted_ = half == 0 ? T::kMeans : 0;
    return half;
  }

  /// Stores the sums of P over all blocks in the last four elements of `value`. They are divided by the number of
  /// threads that hold the same sum, because write() adds up the elements of four threads.
  __device__ void restore_row_sums() {
    constexpr float kShare = T::kSubtileRecords == 1 ? 0.25F : 0.5F;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      value[kSums + 2 * row] = row_sum_[row] * kShare;
      value[kSums + 2 * row + 1] = 0;
    }
  }

  /// Divides by the row sums and writes the tile's rows.
  __device__ void write(const TileIndex& tile, const float (&shift)[2]) const {
    const int thread = ptx::thread();
    write_rows(tile, shift, thread / 32, thread % 32);
  }

  /// Writes this part for add_parts().
  __device__ void leave_part(int slot, const float (&shift)[2]) const {
    const int thread = ptx::thread();
    float4* to = part(slot, thread);
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i)
      to[i * kConsumers] = make_float4(value[4 * i], value[4 * i + 1], value[4 * i + 2], value[4 * i + 3]);
    *shift_of(slot, thread) = make_float2(shift[0], shift[1]);
  }

  /// Sets O to the sum of the parts in slots [first, last], with a common shift.
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

  __device__ float (&four(int i))[4] {
    return *reinterpret_cast<float(*)[4]>(value + i);
  }

  /// Returns the offset of the noted sums of rows r and r + 8 of the warp's 16: kMeans pairs of fp16.
  __device__ static int sums_of(int warp, int r) {
    return warp * kWarpBytes + r * (T::kMeans + 2) * 4;
  }

  /// Notes the sums of the thread's two rows. Four threads hold these rows and write equal sums. If a subtile has two
  /// records, the first two threads have the sums of the first record, and the others the sums of the second.
  __device__ void note(float sum, float sum8) const {
    *reinterpret_cast<__half2*>(rows_ + my_sums_ + noted_ % T::kMeans * 4) = __floats2half2_rn(sum, sum8);
  }

  __device__ void scale_noted(const float (&alpha)[2]) const {
    const int count = noted_ % T::kMeans, thread = ptx::thread();
    auto* pairs = reinterpret_cast<__half2*>(rows_ + sums_of(thread / 32, thread % 32 / 4));
    __syncwarp();
#pragma unroll 1
    for (int slot = thread % 4; slot < count; slot += 4) {
      const float2 sums = __half22float2(pairs[slot]);
      pairs[slot] = __floats2half2_rn(sums.x * alpha[0], sums.y * alpha[1]);
    }
    __syncwarp();
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

  /// Writes the warp's rows. They are first put together in the warp's part of rows_, 64 columns at a time, so that V's
  /// scales are read and rows are written in pieces of 16 bytes. With the layout of the accumulators, each store would
  /// touch 8 rows.
  __device__ void write_rows(const TileIndex& tile, const float (&shift)[2], int warp, int lane) const {
    const int first = tile.tile * T::kRows + warp * 16;
    float inverse[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float sum = value[kSums + 2 * row] + value[kSums + 2 * row + 1];
      sum += __shfl_xor_sync(~0U, sum, 1);
      sum += __shfl_xor_sync(~0U, sum, 2);
      inverse[row] = sum > 0 ? __fdividef(1.0F, sum) : 0.0F;
      const int query = first + lane / 4 + 8 * row;
      if (p_.lse != nullptr && lane % 4 == 0 && query < p_.queries) write_lse(tile, query, shift[row], sum);
    }
    uint8_t* staged = rows_ + warp * kWarpBytes;
#pragma unroll
    for (int i = 0; i < ceil_div(T::kChannels, 64); ++i) {
      __syncwarp();
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (32 * i + 4 * j >= kSums) break;
#pragma unroll
        for (int row = 0; row < 2; ++row)
          *reinterpret_cast<float2*>(staged + place(lane / 4 + 8 * row, 2 * j + lane % 4 / 2) + lane % 2 * 8) =
              make_float2(value[32 * i + 4 * j + 2 * row], value[32 * i + 4 * j + 2 * row + 1]);
      }
      __syncwarp();
      write_columns(tile, staged, inverse, first, lane, 64 * i);
    }
    __syncwarp();
  }

  /// Writes 64 columns from `from` on. Each lane has the same eight columns in four of the warp's 16 rows.
  __device__ void write_columns(const TileIndex& tile, const uint8_t* staged, const float (&inverse)[2], int first,
                                int lane, int from) const {
    const int piece = lane % 8, column = from + piece * 8;
    const int64_t channel = static_cast<int64_t>(sizes_.group.of(tile.bh)) * D + column;
    alignas(16) float scale[8], center[8];
    load(buffers_.v_scale + channel, scale);
    load(buffers_.v_center + channel, center);
    const int b = tile.bh / p_.heads, bytes = p_.out_scale == nullptr ? 2 : 1;
    const float inverse_scale = inverse_out_scale(p_, b);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      scale[c] *= inverse_scale;
      center[c] *= inverse_scale;
    }
    uint8_t* out = static_cast<uint8_t*>(p_.out.data) +
                   bytes * (b * p_.out.batch_stride + tile.bh % p_.heads * p_.out.head_stride +
                            (first + lane / 8) * p_.out.token_stride + column);
    const int rows = column < p_.head_dim ? p_.queries - first - lane / 8 : 0;
#pragma unroll
    for (int r = 0; r < 16; r += 4) {
      const float factor = __shfl_sync(~0U, inverse[r / 8], (r + lane / 8) % 8 * 4);
      alignas(16) float x[8];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float4*>(x + 4 * half) =
            *reinterpret_cast<const float4*>(staged + place(r + lane / 8, 2 * piece + half));
#pragma unroll
      for (int c = 0; c < 8; ++c) x[c] = fmaf(x[c] * factor, scale[c], factor == 0 ? 0.0F : center[c]);
      if (r < rows) store(out, x);
      out += 4 * bytes * p_.out.token_stride;
    }
  }

  __device__ void store(uint8_t* to, const float (&x)[8]) const {
    if (p_.out_scale != nullptr) return store_e4m3(to, x);
    *reinterpret_cast<uint4*>(to) =
        make_uint4(pack_pair(x[0], x[1]), pack_pair(x[2], x[3]), pack_pair(x[4], x[5]), pack_pair(x[6], x[7]));
  }

  __device__ static void load(const float* from, float (&x)[8]) {
    *reinterpret_cast<float4*>(x) = __ldg(reinterpret_cast<const float4*>(from));
    *reinterpret_cast<float4*>(x + 4) = __ldg(reinterpret_cast<const float4*>(from) + 1);
  }

  /// Returns the offset of 16 bytes of row r in the warp's memory, swizzled against bank conflicts.
  __device__ static int place(int r, int chunk) {
    return r * T::kRowBytes + (chunk ^ (r & 7)) * 16;
  }

  /// Returns two elements of the output, a in the low half.
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

  const KernelParams& p_;
  const Sizes& sizes_;
  const Buffers& buffers_;
  OutputMemory<T>& memory_;
  uint8_t* const rows_;
  int my_sums_;    // offset of this thread's first noted sum in rows_
  int noted_ = 0;  // number of noted sums, counted through both halves of the ring of means
  float row_sum_[2];
};

}  // namespace sparsereel::attention::cuda::hopper
