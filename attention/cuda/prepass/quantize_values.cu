// Subtracts V's center, and writes V as transposed records in e4m3 or int8, or as fp16 records.
//
// In int8 each record has its own scales. In the other formats the scale of V comes from a sample. If a record has
// values too large for this scale, a second kernel makes the record again.
#include <cfloat>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/output_scale.cuh"
#include "attention/cuda/prepass/quantize.cuh"
#include "attention/cuda/prepass/value_outliers.cuh"

namespace sparsereel::attention::cuda {
namespace {

/// The transpose of a record in shared memory, as words of four keys of a channel.
template <int D>
struct Transpose {
  static constexpr int kWords = kRecord / 4, kStride = D + 2;

  alignas(16) uint32_t word[kWords * kStride];

  __device__ void put(int at, int column, const uint32_t (&words)[kLaneElements]) {
#pragma unroll
    for (int c = 0; c < kLaneElements; c += 2)
      *reinterpret_cast<uint2*>(word + at * kStride + column + c) = make_uint2(words[c], words[c + 1]);
  }

  /// Returns 16 keys of a channel.
  __device__ uint4 get(int row, int chunk) const {
    const uint32_t* from = word + chunk * 4 * kStride + row;
    return make_uint4(from[0], from[kStride], from[2 * kStride], from[3 * kStride]);
  }
};

/// Makes the compiler unpack x again. If it kept the unpacked values, they would take twice the registers.
template <typename T>
__device__ void unpack_anew(Packed<T>& x) {
  auto& word = reinterpret_cast<uint4&>(x);
  asm volatile("" : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w));
}

/// Returns the largest |v| in a thread's part of a record, for the output's scale.
template <typename T, int kRounds>
__device__ float largest_of(const Packed<T> (&packed)[kRounds][4]) {
  float most = 0;
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int i = 0; i < 4; ++i) most = fmaxf(most, largest_of(packed[round][i]));
  return most;
}

/// The part of a record of V that a thread holds: the values of its eight channels for 4 keys of each round.
template <typename T, int D>
struct KeptValues {
  static constexpr int kRowLanes = D / kLaneElements, kTogether = kQuantizeThreads / kRowLanes;
  static constexpr int kRounds = Transpose<D>::kWords / kTogether;

  int left;        // number of keys of the record and of all later ones
  int first_word;  // the thread's word of four keys in the first round
  Packed<T> value[kRounds][4];

  __device__ int word(int round) const { return first_word + round * kTogether; }

  /// Loads the values. Those past the last key are zeros.
  __device__ __forceinline__ void load(const Rows<T>& rows, int first) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = key_of(word(round), i);
        value[round][i] = rows.load(first + (key < left ? key : 0));
        if (key >= left) value[round][i] = {};
      }
  }

  /// Writes the record's mean of each channel, [D] in shared memory. `share` is 1 / the number of keys.
  __device__ __forceinline__ void write_mean(float share, float* mean) {
    Pool<D> pool;
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x[kLaneElements];
        unpack(value[round][i], x);
        unpack_anew(value[round][i]);
        pool.add(x, 1);
      }
    pool.write(share, [&](int c, float x) { mean[c] = x; });
  }

  /// Raises `most`, the bits of each channel's largest |v - center|, to the largest among the thread's keys.
  __device__ __forceinline__ void raise_to_largest(const float (&center)[kLaneElements],
                                                   uint32_t (&most)[kLaneElements]) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x[kLaneElements];
        unpack(value[round][i], x);
        unpack_anew(value[round][i]);
        const uint32_t real = key_of(word(round), i) < left ? ~0U : 0;
#pragma unroll
        for (int c = 0; c < kLaneElements; ++c)
          most[c] = max(most[c], __float_as_uint(fabsf(__fsub_rn(x[c], center[c]))) & real);
      }
  }

  /// Puts v - center in int8 into the transpose. most: the bits of the largest |v - center| of each channel.
  __device__ __forceinline__ void quantize_int8(const float (&center)[kLaneElements],
                                                const uint32_t (&most)[kLaneElements], int column,
                                                Transpose<D>& transpose) const {
    float inverse[kLaneElements];
#pragma unroll
    for (int c = 0; c < kLaneElements; ++c) inverse[c] = int8_inverse_scale(__uint_as_float(most[c]));
    put(column, transpose, [&](const float(&x)[4][kLaneElements], int c) {
      const auto byte = [&](int i) { return int8_byte(__fsub_rn(x[i][c], center[c]), inverse[c]); };
      return four_bytes(byte(0), byte(1), byte(2), byte(3));
    });
  }

  /// Puts v * inverse - mean in e4m3 into the transpose.
  __device__ __forceinline__ void quantize(const float (&inverse)[kLaneElements], const float (&mean)[kLaneElements],
                                           int column, Transpose<D>& transpose) const {
    put(column, transpose, [&](const float(&x)[4][kLaneElements], int c) {
      const auto e4m3 = [&](int i) { return fmaf(x[i][c], inverse[c], -mean[c]); };
      return e4m3x4(e4m3(0), e4m3(1), e4m3(2), e4m3(3));
    });
  }

 private:
  /// Puts the bytes of all values into the transpose, and zeros for keys that are not real. four_of(x, c) returns the
  /// bytes of channel c of four keys, x.
  template <typename FourOf>
  __device__ __forceinline__ void put(int column, Transpose<D>& transpose, const FourOf& four_of) const {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      float x[4][kLaneElements];
      uint32_t real = 0, words[kLaneElements];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        unpack(value[round][i], x[i]);
        if (key_of(word(round), i) < left) real |= 0xFFU << 8 * i;
      }
#pragma unroll
      for (int c = 0; c < kLaneElements; ++c) words[c] = four_of(x, c) & real;
      transpose.put(word(round), column, words);
    }
  }
};

/// Writes the record that is in the transpose, with its rows of ones, its mean and its marks for outliers.
/// record_mean: [D], the mean of the scaled values before rounding. share: 1 / the number of keys.
template <int D>
__device__ __forceinline__ void write_less_mean(const Sizes& sizes, const Buffers& buffers,
                                                const RecordThread<D>& thread, const Transpose<D>& transpose,
                                                const float* record_mean, float share, int left) {
  const int bk = thread.b * sizes.kv_heads + thread.h;
  const int64_t record = static_cast<int64_t>(bk) * sizes.key_records + thread.block;
  uint8_t* out = buffers.v + record * sizes.value_record_bytes;
  uint16_t* means = buffers.v_mean + record * D;
#pragma unroll
  for (int i = 0; i < D * 4 / kQuantizeThreads; ++i) {
    const unsigned item = threadIdx.x + i * kQuantizeThreads;
    const int row = static_cast<int>(item / 4), chunk = static_cast<int>(item % 4);
    const uint4 keys = transpose.get(row, chunk);
    if (sizes.stat_stride > 1 && reaches<kOutlierCode>(keys)) {  // a sample of all values already includes the outliers
      buffers.v_outliers[static_cast<int64_t>(bk) * sizes.key_blocks + thread.block] = 1;
      if (reaches<kLargestCode>(keys)) buffers.v_saturated[bk] = 1;
    }
    *reinterpret_cast<uint4*>(out + value_offset(row, chunk * 16)) = keys;
    const float its_mean = fp16_range(record_mean[row] - sum_of_row(keys) * share);
    if (chunk == 0) means[row] = __half_as_ushort(__float2half_rn(its_mean));
  }
  for (int item = static_cast<int>(threadIdx.x); item < kOnesRows * ones_sets(D) * 4; item += kQuantizeThreads)
    *reinterpret_cast<uint4*>(out + value_offset(D + item / 4, item % 4 * 16)) = ones<D>(item / 4, item % 4, left);
}

/// Writes the e4m3 record of `thread` after subtracting the mean of the record, and writes that mean. The mean is
/// corrected by what rounding adds to the sum of the record's keys, so the error cancels if all keys weigh the same.
/// Also marks the record if it has outliers.
template <typename T, int D>
__device__ void make_e4m3_less_mean(const KernelParams& p, const Sizes& sizes, const Buffers& buffers,
                                    const RecordThread<D>& thread) {
  using Kept = KeptValues<T, D>;
  __shared__ Transpose<D> transpose;
  alignas(16) __shared__ float raw_mean[D];
  __shared__ float record_mean[D];
  const int bk = thread.b * sizes.kv_heads + thread.h, column = thread.column;
  const Rows<T> rows(p.v, thread.b, thread.h, p.head_dim, column);
  const int first = thread.block * kRecord, left = key_count(p, thread.b) - first;
  Kept kept{.left = left, .first_word = static_cast<int>(threadIdx.x / Kept::kRowLanes)};
  kept.load(rows, first);
  if (p.out_scale != nullptr) raise_out_scale(largest_of(kept.value), p.out_scale + thread.b);
  const int64_t at = static_cast<int64_t>(bk) * D + column;
  float mean[kLaneElements], inverse[kLaneElements], center[kLaneElements];
  load_row(buffers.v_scale + at, inverse);
  load_row(buffers.v_center + at, center);
  const float share = fast_inverse(static_cast<float>(max(min(left, kRecord), 1)));
  kept.write_mean(share, raw_mean);
  load_row(raw_mean + column, mean);
#pragma unroll
  for (int c = 0; c < kLaneElements; ++c) {
    inverse[c] = fast_inverse(inverse[c]);
    if (threadIdx.x < Kept::kRowLanes) record_mean[column + c] = (mean[c] - center[c]) * inverse[c];
    mean[c] *= inverse[c];
  }
  kept.quantize(inverse, mean, column, transpose);
  __syncthreads();
  write_less_mean<D>(sizes, buffers, thread, transpose, record_mean, share, left);
}

/// Raises each of the thread's channels to its largest value over the CTA. Values are the bits of |x|, so a NaN is
/// larger than all numbers.
template <int D>
__device__ __forceinline__ void raise_to_largest(int column, uint32_t (&most)[kLaneElements]) {
  constexpr int kRowLanes = D / kLaneElements;
  __shared__ uint32_t shared[kQuantizeWarps][D];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
#pragma unroll
    for (int lanes = kRowLanes; lanes < 32; lanes *= 2) most[i] = max(most[i], __shfl_xor_sync(~0U, most[i], lanes));
    if (lane < kRowLanes) shared[warp][column + i] = most[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i)
#pragma unroll
    for (int w = 0; w < kQuantizeWarps; ++w) most[i] = max(most[i], shared[w][column + i]);
}

/// Writes the int8 record of `thread`: V less its center, with the scale of each channel of the record. Computes as
/// cpu::round_values() does, to the bit.
template <typename T, int D>
__device__ void make_int8(const KernelParams& p, const Sizes& sizes, const Buffers& buffers,
                          const RecordThread<D>& thread) {
  using Kept = KeptValues<T, D>;
  __shared__ Transpose<D> transpose;
  const int bk = thread.b * sizes.kv_heads + thread.h, column = thread.column;
  const Rows<T> rows(p.v, thread.b, thread.h, p.head_dim, column);
  const int first = thread.block * kRecord, left = key_count(p, thread.b) - first;
  Kept kept{.left = left, .first_word = static_cast<int>(threadIdx.x / Kept::kRowLanes)};
  kept.load(rows, first);
  float center[kLaneElements];
  load_row(buffers.v_center + static_cast<int64_t>(bk) * D + column, center);
  uint32_t most[kLaneElements] = {};
  kept.raise_to_largest(center, most);
  raise_to_largest<D>(column, most);
  kept.quantize_int8(center, most, column, transpose);
  __syncthreads();
  uint8_t* out = buffers.v + (static_cast<int64_t>(bk) * sizes.key_records + thread.block) * sizes.value_record_bytes;
#pragma unroll
  for (int item = static_cast<int>(threadIdx.x); item < D * 4; item += kQuantizeThreads)
    *reinterpret_cast<uint4*>(out + value_offset(item / 4, item % 4 * 16)) = transpose.get(item / 4, item % 4);
  if (threadIdx.x >= Kept::kRowLanes) return;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const float largest = __uint_as_float(most[i]);
    reinterpret_cast<float*>(out + D * kRecord)[column + i] = int8_scale(largest);
    // Means of blocks are stored in fp16, in units of this scale. Positive floats can be compared as integers.
    float* scale = buffers.v_scale + static_cast<int64_t>(bk) * D + column + i;
    if (largest > *scale * kHalfMax && largest <= FLT_MAX)
      atomicMax(reinterpret_cast<int*>(scale), __float_as_int(largest / kHalfMax));
  }
}

/// Writes the fp16 record of `thread`: a row of channels for each key. Marks the head if a value does not fit.
template <typename T, int D>
__device__ void make_half(const KernelParams& p, const Sizes& sizes, const Buffers& buffers,
                          const RecordThread<D>& thread) {
  const int bk = thread.b * sizes.kv_heads + thread.h;
  const Rows<T> rows(p.v, thread.b, thread.h, p.head_dim, thread.column);
  const int first = thread.block * kRecord, left = key_count(p, thread.b) - first;
  float scale[kLaneElements], center[kLaneElements], most = 0;
  const int64_t at = static_cast<int64_t>(bk) * D + thread.column;
  load_row(buffers.v_scale + at, scale);
  load_row(buffers.v_center + at, center);
  uint8_t* out = buffers.v + (static_cast<int64_t>(bk) * sizes.key_records + thread.block) * sizes.value_record_bytes;
#pragma unroll 4
  for (int round = 0; round < RecordThread<D>::kRounds; ++round) {
    const int row = thread.row(round);
    float x[kLaneElements];
    unpack(rows.load(first + (row < left ? row : 0)), x);
    Packed<__half> packed;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      const float value = row < left ? __fdividef(x[i] - center[i], scale[i]) : 0.0F;
      most = fmaxf(most, fabsf(value));
      packed.element[i] = __float2half_rn(value);
    }
    *reinterpret_cast<uint4*>(out + half_value_offset<D>(row, thread.column * 2)) = *reinterpret_cast<uint4*>(&packed);
  }
  if (!(most <= kHalfMax)) buffers.v_saturated[bk] = 1;
}

/// Makes the record of `thread`. All threads of the CTA call it together.
template <typename T, int D, ValueFormat kFormat>
__device__ void make_record(const KernelParams& p, const Sizes& sizes, const Buffers& buffers,
                            const RecordThread<D>& thread) {
  if constexpr (kFormat == ValueFormat::int8) make_int8<T, D>(p, sizes, buffers, thread);
  if constexpr (kFormat == ValueFormat::e4m3_less_mean) make_e4m3_less_mean<T, D>(p, sizes, buffers, thread);
  if constexpr (kFormat == ValueFormat::half) make_half<T, D>(p, sizes, buffers, thread);
}

constexpr int ctas_per_multiprocessor(int D, ValueFormat format) {
  if (format == ValueFormat::int8) return D == 256 ? 3 : 6;
  return format == ValueFormat::e4m3_less_mean ? (D == 64 ? 7 : 5) : 6;
}

template <typename T, int D, ValueFormat kFormat>
__global__ void __launch_bounds__(kQuantizeThreads, ctas_per_multiprocessor(D, kFormat))
    quantize_values(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                    const __grid_constant__ Buffers buffers) {
  const RecordThread<D> thread;
  if (kFormat == ValueFormat::e4m3_less_mean && threadIdx.x == 0)
    buffers.v_outliers[static_cast<int64_t>(thread.b * sizes.kv_heads + thread.h) * sizes.key_blocks + thread.block] =
        0;
  make_record<T, D, kFormat>(p, sizes, buffers, thread);
}

/// Raises V's scales of a head to fit all of its values, not only the sample. A lane has eight channels.
template <typename T, int D>
__device__ void widen_scales(const KernelParams& p, const Buffers& buffers, const RecordThread<D>& thread, int bk) {
  constexpr int kRowLanes = D / kLaneElements, kRows = kQuantizeThreads / kRowLanes;
  __shared__ float shared[kRows][D];
  const Rows<T> rows(p.v, thread.b, thread.h, p.head_dim, thread.column);
  const int64_t at = static_cast<int64_t>(bk) * D;
  const int count = key_count(p, thread.b), row = static_cast<int>(threadIdx.x) / kRowLanes;
  float center[kLaneElements], most[kLaneElements] = {};
  load_row(buffers.v_center + at + thread.column, center);
  for (int token = row; token < count; token += kRows) {
    float x[kLaneElements];
    unpack(rows.load(token), x);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) most[i] = fmaxf(most[i], fabsf(x[i] - center[i]));
  }
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) shared[row][thread.column + i] = most[i];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < D; c += kQuantizeThreads) {
    float largest = 0;
    for (int r = 0; r < kRows; ++r) largest = fmaxf(largest, shared[r][c]);
    // Subtracting the mean of its record can make a value twice as large.
    if (largest < FLT_MAX) buffers.v_scale[at + c] = fmaxf(buffers.v_scale[at + c], largest * (2 / kE4m3Max));
  }
  __syncthreads();
}

constexpr int kMended = 8;  // blocks that a CTA checks

/// Makes the records with outliers again, or all records of a head if a value does not fit its scale. The second case
/// is rare, so one CTA does all the work for the head.
template <typename T, int D, ValueFormat kFormat>
__global__ void __launch_bounds__(kQuantizeThreads)
    mend_values(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                const __grid_constant__ Buffers buffers) {
  const int bk = static_cast<int>(blockIdx.x), first = static_cast<int>(blockIdx.y) * kMended;
  const bool whole = buffers.v_saturated[bk] != 0;
  const uint8_t* outliers = buffers.v_outliers + static_cast<int64_t>(bk) * sizes.key_blocks;
  if (whole ? first > 0 : kFormat != ValueFormat::e4m3_less_mean) return;
  const int last = whole ? sizes.key_blocks : min(first + kMended, sizes.key_blocks);
  const int mine = first + static_cast<int>(threadIdx.x);
  if (!whole && __syncthreads_or(mine < last ? outliers[mine] : 0) == 0) return;
  RecordThread<D> thread;
  thread.b = bk / sizes.kv_heads;
  thread.h = bk % sizes.kv_heads;
  if (whole) widen_scales<T, D>(p, buffers, thread, bk);
  for (thread.block = first; thread.block < last; ++thread.block) {
    if (!whole && outliers[thread.block] == 0) continue;
    if (whole) make_record<T, D, kFormat>(p, sizes, buffers, thread);
    __syncthreads();
    if (kFormat == ValueFormat::e4m3_less_mean) spare_outliers<T, D>(p, sizes, buffers, thread);
    __syncthreads();
  }
}

template <typename T, int D, ValueFormat kFormat>
void launch_format(const LaunchContext& context) {
  const auto run = [&](auto* kernel, dim3 grid) { context.start(kernel, grid, kQuantizeThreads); };
  run(quantize_values<T, D, kFormat>,
      record_grid(context.sizes.kv_heads, context.sizes.key_blocks, context.params.batch));
  if constexpr (kFormat != ValueFormat::int8) {
    if (context.sizes.stat_stride == 1) return;  // the scales come from all values
    const int parts = ceil_div(context.sizes.key_blocks, kMended);
    run(mend_values<T, D, kFormat>,
        dim3(static_cast<unsigned>(context.sizes.batch_kv_heads), static_cast<unsigned>(parts)));
  }
}

template <typename T, int D>
void launch(const LaunchContext& context) {
  if constexpr (D <= 128) {
    if (context.kernel.values == ValueFormat::e4m3_less_mean)
      return launch_format<T, D, ValueFormat::e4m3_less_mean>(context);
  }
  launch_format<T, D, ValueFormat::int8>(context);
}

template <typename T, int D>
void launch_half(const LaunchContext& context) {
  launch_format<T, D, ValueFormat::half>(context);
}

}  // namespace

void launch_quantize_values(const LaunchContext& context) {
  if (context.kernel.values != ValueFormat::half) {
    SPARSEREEL_FOR_TYPE(context, launch);
  } else {
    SPARSEREEL_FOR_TYPE(context, launch_half);
  }
}

}  // namespace sparsereel::attention::cuda
