// One pass over q, k and v: prologue, 8-bit records with their scales, and pooled means for the block selection.
#include <cfloat>

#include "attention/cuda/kernels.h"
#include "attention/cuda/rows.cuh"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kWarpRows = kRecord / kWarps;  // rows of a record that one warp holds

/// A record's rows are dealt out so that a warp holds exactly the keys of one int8 scale: key % 8 = 2 w and 2 w + 1.
__device__ int row_of(int warp, int index) {
  return index / 2 * 8 + 2 * warp + index % 2;
}

/// Nearest integer to x in -127..127 as the low byte: adding 1.5 * 2^23 leaves it in the mantissa.
__device__ uint32_t int8_bits(float x) {
  return __float_as_uint(fminf(fmaxf(x, -kInt8Max), kInt8Max) + 12582912.0F);
}

__device__ uint2 pack_int8(const float (&x)[kLaneElements], float inverse_scale) {
  uint32_t byte[kLaneElements];
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) byte[i] = int8_bits(x[i] * inverse_scale);
  const auto four = [&](int i) {
    return __byte_perm(__byte_perm(byte[i], byte[i + 1], 0x0040), __byte_perm(byte[i + 2], byte[i + 3], 0x0040),
                       0x5410);
  };
  return make_uint2(four(0), four(4));
}

/// Sums of rows (and of rows scaled to length 1) over a record; every lane adds its eight columns.
template <int D>
class Pool {
 public:
  __device__ void add(const float (&x)[kLaneElements]) {
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) sum_[i] += x[i];
  }

  /// All threads. column_sum(c) of all warps is then in total[c].
  __device__ void reduce(float (*shared)[D], float* total) {
    constexpr int kRowLanes = D / kLaneElements;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
#pragma unroll
      for (int lanes = kRowLanes; lanes < 32; lanes *= 2) sum_[i] += __shfl_xor_sync(~0U, sum_[i], lanes);
      if (lane < kRowLanes) shared[warp][lane * kLaneElements + i] = sum_[i];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < D; c += kThreads)
      total[c] = shared[0][c] + shared[1][c] + shared[2][c] + shared[3][c];
    __syncthreads();
  }

 private:
  float sum_[kLaneElements] = {};
};

template <int D>
__device__ float inverse_length(const float (&x)[kLaneElements]) {
  float square = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) square += x[i] * x[i];
  return rsqrtf(fmaxf(row_sum<D>(square), FLT_MIN));
}

template <typename T, int D>
class Quantiser {
  static constexpr int kRowLanes = D / kLaneElements;
  static constexpr int kRowsAtOnce = 32 / kRowLanes;
  static constexpr int kRounds = kWarpRows / kRowsAtOnce;
  static constexpr int kUnroll = 4;  // enough loads in flight; more would cost the registers that keep warps resident

 public:
  __device__ Quantiser(const Problem& p, const Sizes& sizes, const Buffers& buffers, int bh, int block)
      : p_(p),
        sizes_(sizes),
        buffers_(buffers),
        bh_(bh),
        b_(bh / p.heads),
        h_(bh % p.heads),
        block_(block),
        warp_(static_cast<int>(threadIdx.x) / 32),
        column_(static_cast<int>(threadIdx.x) % kRowLanes * kLaneElements) {}

  __device__ void queries() const {
    const RowPrologue<D> prologue(p_.prologue, p_.prologue.q_weight, p_.prologue.q_bias,
                                  moments_of(p_, buffers_, true, b_), h_, p_.head_dim, column_);
    const Rows<T> rows(p_.q, b_, h_, p_.head_dim);
    const int64_t record = static_cast<int64_t>(bh_) * sizes_.query_blocks + block_;
    Pool<D> sum, direction;
#pragma unroll kUnroll
    for (int round = 0; round < kRounds; ++round) {
      const int row = row_at(round), token = block_ * kRecord + row;
      const bool real = token < p_.queries;
      float x[kLaneElements];
      load(rows, prologue, min(token, p_.queries - 1), x);
      zero_unless(real, x);
      const float scale = row_max<D>(largest(x)) / kInt8Max + kInt8MinScale;
      *reinterpret_cast<uint2*>(buffers_.q + record * kRecord * D + record_offset<D>(row, column_)) =
          pack_int8(x, 1.0F / scale);
      if (column_ == 0) buffers_.q_scale[record * kRecord + row] = real ? scale * p_.scale * 1.44269504F : 0.0F;
      if (buffers_.q_dot_mean != nullptr) dot_mean(x, token, real);
      if (buffers_.q_mean != nullptr) {
        sum.add(x);
        if (buffers_.q_direction != nullptr) add_direction(x, direction);
      }
    }
    const float count = static_cast<float>(min(kRecord, p_.queries - block_ * kRecord));
    if (buffers_.q_mean != nullptr) write_pool(sum, 1.0F / fmaxf(count, 1.0F), buffers_.q_mean + record * D);
    if (buffers_.q_direction != nullptr) write_pool(direction, 1.0F, buffers_.q_direction + record * D);
  }

  __device__ void keys() const {
    const RowPrologue<D> prologue(p_.prologue, p_.prologue.k_weight, p_.prologue.k_bias,
                                  moments_of(p_, buffers_, false, b_), h_, p_.head_dim, column_);
    const Rows<T> rows(p_.k, b_, h_, p_.head_dim);
    const int64_t record = static_cast<int64_t>(bh_) * sizes_.key_blocks + block_;
    const int count = key_count(p_, b_);
    float mean[kLaneElements], most = 0;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) mean[i] = buffers_.key_mean[static_cast<int64_t>(bh_) * D + column_ + i];
    // A key block past a short sequence's end has no key at all; it is never listed, but is written all the same.
    const auto smoothed = [&](int round, float(&x)[kLaneElements]) {
      load(rows, prologue, max(min(block_ * kRecord + row_at(round), count - 1), 0), x);
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) x[i] -= mean[i];
    };
    Pool<D> sum, direction;
#pragma unroll kUnroll
    for (int round = 0; round < kRounds; ++round) {
      float x[kLaneElements];
      smoothed(round, x);
      most = fmaxf(most, largest(x));
      if (buffers_.k_mean == nullptr) continue;
      zero_unless(block_ * kRecord + row_at(round) < count, x);
      sum.add(x);
      if (buffers_.k_similarity != nullptr) add_direction(x, direction);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, lanes));
    const float scale = most / kInt8Max + kInt8MinScale, inverse = 1.0F / scale;
    if (threadIdx.x % 32 == 0) buffers_.k_scale[record * kKeyGroups + warp_] = scale;
#pragma unroll kUnroll
    for (int round = 0; round < kRounds; ++round) {  // reads the rows again: they are in the L1 cache
      float x[kLaneElements];
      smoothed(round, x);
      *reinterpret_cast<uint2*>(buffers_.k + record * kRecord * D + record_offset<D>(row_at(round), column_)) =
          pack_int8(x, inverse);
    }
    const int real = max(0, min(kRecord, count - block_ * kRecord));
    if (buffers_.k_mean != nullptr)
      write_pool(sum, 1.0F / fmaxf(static_cast<float>(real), 1.0F), buffers_.k_mean + record * D);
    if (buffers_.k_similarity != nullptr) write_similarity(direction, real, buffers_.k_similarity + record);
  }

  /// V as e4m3, transposed: channel rows of 64 keys, then the rows of ones.
  __device__ void values() const {
    constexpr int kWords = kRecord / 4, kStride = D + 2;  // a word: four keys of a channel
    __shared__ uint32_t shared[kWords * kStride];
    const Rows<T> rows(p_.v, b_, h_, p_.head_dim);
    const int count = key_count(p_, b_);
    for (int item = threadIdx.x; item < kWords * kRowLanes; item += kThreads) {
      const int word = item / kRowLanes, column = item % kRowLanes * kLaneElements;
      const int first = word / 4 * 16 + word % 4 * 2;  // the word holds keys first, first + 1, + 8, + 9
      float x[4][kLaneElements];
#pragma unroll
      for (int i = 0; i < 4; ++i) value_row(rows, block_ * kRecord + first + i / 2 * 8 + i % 2, count, column, x[i]);
#pragma unroll
      for (int i = 0; i < kLaneElements; i += 2)
        *reinterpret_cast<uint2*>(shared + word * kStride + column + i) = make_uint2(
            e4m3x4(x[0][i], x[1][i], x[2][i], x[3][i]), e4m3x4(x[0][i + 1], x[1][i + 1], x[2][i + 1], x[3][i + 1]));
    }
    __syncthreads();
    const int64_t record = static_cast<int64_t>(bh_) * sizes_.key_blocks + block_;
    uint8_t* out = buffers_.v + record * sizes_.value_record_bytes;
    for (int item = threadIdx.x; item < (D + kOnesRows) * 4; item += kThreads) {
      const int row = item / 4, chunk = item % 4;
      uint4 x;
      if (row < D) {
        const uint32_t* from = shared + chunk * 4 * kStride + row;
        x = make_uint4(from[0], from[kStride], from[2 * kStride], from[3 * kStride]);
      } else {
        x = ones(row - D, chunk, count - block_ * kRecord);
      }
      *reinterpret_cast<uint4*>(out + value_offset(row, chunk * 16)) = x;
    }
  }

  /// V as fp16: rows of keys.
  __device__ void half_values() const {
    const Rows<T> rows(p_.v, b_, h_, p_.head_dim);
    const int64_t record = static_cast<int64_t>(bh_) * sizes_.key_blocks + block_;
    const int count = key_count(p_, b_);
    const float* centre = buffers_.v_centre + static_cast<int64_t>(bh_) * D + column_;
#pragma unroll kUnroll
    for (int round = 0; round < kRounds; ++round) {
      const int row = row_at(round), token = block_ * kRecord + row;
      float x[kLaneElements];
      unpack(rows.load(token < count ? token : 0, column_), x);
      Packed<__half> out;
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) out.element[i] = __float2half_rn(token < count ? x[i] - centre[i] : 0.0F);
      *reinterpret_cast<uint4*>(buffers_.v + record * sizes_.value_record_bytes +
                                half_value_offset<D>(row, column_ * 2)) = *reinterpret_cast<uint4*>(&out);
    }
  }

 private:
  __device__ int row_at(int round) const {
    return row_of(warp_, round * kRowsAtOnce + static_cast<int>(threadIdx.x) % 32 / kRowLanes);
  }

  __device__ static void load(const Rows<T>& rows, const RowPrologue<D>& prologue, int token,
                              float (&x)[kLaneElements]) {
    unpack(rows.load(token, static_cast<int>(threadIdx.x) % kRowLanes * kLaneElements), x);
    prologue.apply(token, x);
  }

  __device__ static float largest(const float (&x)[kLaneElements]) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) most = fmaxf(most, fabsf(x[i]));
    return most;
  }

  __device__ static void zero_unless(bool real, float (&x)[kLaneElements]) {
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) x[i] = real ? x[i] : 0.0F;
  }

  __device__ void dot_mean(const float (&x)[kLaneElements], int token, bool real) const {
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
      dot += x[i] * buffers_.key_mean[static_cast<int64_t>(bh_) * D + column_ + i];
    dot = row_sum<D>(dot) * p_.scale;
    if (column_ == 0 && real) buffers_.q_dot_mean[static_cast<int64_t>(bh_) * p_.queries + token] = dot;
  }

  __device__ static void add_direction(const float (&x)[kLaneElements], Pool<D>& direction) {
    const float inverse = inverse_length<D>(x);
    float unit[kLaneElements];
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) unit[i] = x[i] * inverse;
    direction.add(unit);
  }

  __device__ static void write_pool(Pool<D>& pool, float factor, float* out) {
    __shared__ float shared[kWarps][D], total[D];
    pool.reduce(shared, total);
    for (int c = threadIdx.x; c < D; c += kThreads) out[c] = total[c] * factor;
  }

  /// Mean of the cosines between all pairs of the record's keys.
  __device__ static void write_similarity(Pool<D>& direction, int count, float* out) {
    __shared__ float shared[kWarps][D], total[D];
    direction.reduce(shared, total);
    if (threadIdx.x >= 32) return;
    float square = 0;
    for (int c = threadIdx.x; c < D; c += 32) square += total[c] * total[c];
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) square += __shfl_xor_sync(~0U, square, lanes);
    if (threadIdx.x == 0) *out = square / static_cast<float>(max(1, count * count));
  }

  __device__ void value_row(const Rows<T>& rows, int token, int count, int column, float (&x)[kLaneElements]) const {
    const int64_t at = static_cast<int64_t>(bh_) * D + column;
    const bool real = token < count;
    unpack(rows.load(real ? token : 0, column), x);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i)
      x[i] = real ? (x[i] - buffers_.v_centre[at + i]) * (1.0F / buffers_.v_scale[at + i]) : 0.0F;
  }

  __device__ static uint32_t e4m3x4(float a, float b, float c, float d) {
    uint16_t low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return low | static_cast<uint32_t>(high) << 16;
  }

  /// 16 keys of the row that sums the P of keys with key % 8 = `residue`; `left`: real keys from the record's start on.
  __device__ static uint4 ones(int residue, int chunk, int left) {
    constexpr uint32_t kOne = 0x38;
    uint32_t word[4] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = chunk * 16 + i * 8 + residue, position = value_position(key) % 16;
#pragma unroll
      for (int w = 0; w < 4; ++w)
        if (key < left && position / 4 == w) word[w] |= kOne << 8 * (position % 4);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
  }

  const Problem& p_;
  const Sizes& sizes_;
  const Buffers& buffers_;
  const int bh_, b_, h_, block_, warp_, column_;
};

/// grid.x: heads fastest, so that neighbouring blocks read neighbouring memory; grid.y: q, k, v.
template <typename T, int D>
__global__ void __launch_bounds__(kThreads, D == 256 ? 4 : 6)
    quantise(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
             const __grid_constant__ Buffers buffers, bool half_values) {
  const int h = blockIdx.x % p.heads, rest = blockIdx.x / p.heads;
  const int blocks = max(sizes.query_blocks, sizes.key_blocks), block = rest % blocks, b = rest / blocks;
  const Quantiser<T, D> quantiser(p, sizes, buffers, b * p.heads + h, block);
  if (blockIdx.y == 0 && block < sizes.query_blocks) quantiser.queries();
  if (blockIdx.y == 1 && block < sizes.key_blocks) quantiser.keys();
  if (blockIdx.y == 2 && block < sizes.key_blocks) {
    if (half_values) {
      quantiser.half_values();
    } else {
      quantiser.values();
    }
  }
}

template <typename T>
void launch(const Call& call, bool half_values) {
  const int blocks = call.sizes.query_blocks > call.sizes.key_blocks ? call.sizes.query_blocks : call.sizes.key_blocks;
  const dim3 grid(static_cast<unsigned>(call.sizes.batch_heads) * blocks, 3);
  const auto run = [&](auto* kernel) {
    kernel<<<grid, kThreads, 0, call.stream>>>(call.problem, call.sizes, call.buffers, half_values);
  };
  if (call.sizes.D == 64) run(quantise<T, 64>);
  if (call.sizes.D == 128) run(quantise<T, 128>);
  if (call.sizes.D == 256) run(quantise<T, 256>);
}

}  // namespace

void launch_quantise(const Call& call, bool half_values) {
  switch (call.problem.element) {
    case Element::fp16:
      return launch<__half>(call, half_values);
    case Element::bf16:
      return launch<__nv_bfloat16>(call, half_values);
  }
}

}  // namespace sparsereel::attention::cuda
