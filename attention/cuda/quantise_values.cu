// V less its centre -> records of e4m3, transposed, or of fp16 for kernels without e4m3.
#include <cuda_fp8.h>

#include "attention/cuda/quantise.cuh"

namespace sparsereel::attention::cuda {
namespace {

__device__ uint32_t e4m3x4(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return low | static_cast<uint32_t>(high) << 16;
#else
  return 0;  // no kernel for this target reads e4m3
#endif
}

/// 16 keys of a row of ones. kResidues: 1 for keys with key % 8 = row; else for all keys in the rows of a set
/// (records.h). left: real keys from the record's start on.
template <int D, bool kResidues>
__device__ uint4 ones(int row, int chunk, int left) {
  constexpr uint32_t kOne = 0x38;
  const bool in_set = ones_sets(D) == 1 || row / 4 % 2 == row / kOnesRows;
  if (!kResidues && left >= kRecord) {
    const uint32_t four = in_set ? kOne * 0x01010101U : 0;
    return make_uint4(four, four, four, four);
  }
  uint32_t word[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int key = chunk * 16 + i, position = value_position(i);
    if (key < left && (kResidues ? i % 8 == row : in_set)) word[position / 4] |= kOne << 8 * (position % 4);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

/// The keys of four positions from `word` on, of 16: 0 1 8 9, 2 3 10 11, ...; the order of value_position().
__device__ int key_of(int word, int i) {
  return word / 4 * 16 + word % 4 * 2 + i / 2 * 8 + i % 2;
}

/// Sums of the CTA's columns. A thread brings and gets those of its eight; `shared` is free again after the next
/// __syncthreads().
template <int D>
__device__ void add_up(float (&sum)[kLaneElements], float (*shared)[D], int column) {
  constexpr int kRowLanes = D / kLaneElements;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
#pragma unroll
    for (int lanes = kRowLanes; lanes < 32; lanes *= 2) sum[i] += __shfl_xor_sync(~0U, sum[i], lanes);
    if (threadIdx.x % 32 < kRowLanes) shared[threadIdx.x / 32][column + i] = sum[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i)
    sum[i] = (shared[0][column + i] + shared[1][column + i]) + (shared[2][column + i] + shared[3][column + i]);
}

constexpr float kHalfMax = 65504;

/// The sums of four e4m3's first and third, and second and fourth.
__device__ __half2 halves_added(uint32_t e4m3) {
  const auto two = [](uint32_t bytes) {
    return __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(bytes), __NV_E4M3));
  };
  return __hadd2(two(e4m3), two(e4m3 >> 16));
}

/// Keeps the compiler from keeping what it has unpacked before, which takes twice the registers.
template <typename T>
__device__ void unpack_anew(Packed<T>& x) {
  auto& word = reinterpret_cast<uint4&>(x);
  asm volatile("" : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w));
}

/// Channel rows of 64 keys, then the rows of ones. A word of the transpose in shared memory: four keys of a channel.
/// kMeans: of V less the mean of the record, and that mean. What rounding adds to the sum of the record's keys is taken
/// off the mean: where all keys weigh the same, it cancels.
template <typename T, int D, bool kMeans>
__global__ void __launch_bounds__(kQuantiseThreads, kMeans ? 5 : 6)
    quantise_values(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                    const __grid_constant__ Buffers buffers) {
  constexpr int kRowLanes = D / kLaneElements, kWords = kRecord / 4, kStride = D + 2;
  constexpr int kRounds = kWords * kRowLanes / kQuantiseThreads;
  __shared__ uint32_t shared[kWords * kStride];
  const RecordThread<D> thread;
  const int bh = thread.b * p.heads + thread.h, column = thread.column;
  const Rows<T> rows(p.v, thread.b, thread.h, p.head_dim, thread.column);
  const int first = thread.block * kRecord, left = key_count(p, thread.b) - first;
  const auto word_of = [](int round) {
    return static_cast<int>(threadIdx.x) / kRowLanes + round * (kQuantiseThreads / kRowLanes);
  };
  float inverse[kLaneElements], shift[kLaneElements];  // v -> v * inverse + shift
  const int64_t at = static_cast<int64_t>(bh) * D + column;
  load_row(buffers.v_scale + at, inverse);
  load_row(buffers.v_centre + at, shift);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    inverse[i] = __fdividef(1.0F, inverse[i]);
    shift[i] = -shift[i] * inverse[i];
  }
  Packed<T> kept[kMeans ? kRounds : 1][4];
  const auto load = [&](int round, Packed<T>(&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = key_of(word_of(round), i);
      x[i] = rows.load(first + (key < left ? key : 0));
    }
  };
  const auto value = [&](int round, int i, int c) {
    const float x = fmaf(to_float(kept[kMeans ? round : 0][i].element[c]), inverse[c], shift[c]);
    return key_of(word_of(round), i) < left ? x : 0.0F;
  };
  __shared__ float column_sums[kQuantiseWarps][D];
  const float share = 1.0F / static_cast<float>(max(min(left, kRecord), 1));
  float mean[kLaneElements] = {};
  if constexpr (kMeans) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) load(round, kept[round]);
#pragma unroll
    for (int c = 0; c < kLaneElements; ++c)
#pragma unroll
      for (int round = 0; round < kRounds; ++round)
        mean[c] += (value(round, 0, c) + value(round, 1, c)) + (value(round, 2, c) + value(round, 3, c));
    add_up(mean, column_sums, column);
#pragma unroll
    for (int c = 0; c < kLaneElements; ++c) {
      mean[c] *= share;
      shift[c] -= mean[c];
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int i = 0; i < 4; ++i) unpack_anew(kept[round][i]);
  }
  __half2 rounded[kLaneElements] = {};  // sums
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    if (!kMeans) load(round, kept[0]);
    uint32_t word[kLaneElements];
#pragma unroll
    for (int c = 0; c < kLaneElements; ++c) {
      word[c] = e4m3x4(value(round, 0, c), value(round, 1, c), value(round, 2, c), value(round, 3, c));
      if constexpr (kMeans) rounded[c] = __hadd2(rounded[c], halves_added(word[c]));
    }
#pragma unroll
    for (int c = 0; c < kLaneElements; c += 2)
      *reinterpret_cast<uint2*>(shared + word_of(round) * kStride + column + c) = make_uint2(word[c], word[c + 1]);
  }
  __syncthreads();
  if constexpr (kMeans) {
    float sum[kLaneElements];
#pragma unroll
    for (int c = 0; c < kLaneElements; ++c) sum[c] = __low2float(rounded[c]) + __high2float(rounded[c]);
    add_up(sum, column_sums, column);
    Packed<__half> means;
#pragma unroll
    for (int c = 0; c < kLaneElements; ++c)
      means.element[c] = __float2half_rn(fminf(fmaxf(mean[c] - sum[c] * share, -kHalfMax), kHalfMax));
    if (threadIdx.x < kRowLanes)
      *reinterpret_cast<uint4*>(buffers.v_mean + (static_cast<int64_t>(bh) * sizes.key_blocks + thread.block) * D +
                                column) = *reinterpret_cast<const uint4*>(&means);
  }
  constexpr int kRows = D + kOnesRows * (kMeans ? ones_sets(D) : 1);
  uint8_t* out = buffers.v + (static_cast<int64_t>(bh) * sizes.key_blocks + thread.block) * sizes.value_record_bytes;
  for (int item = static_cast<int>(threadIdx.x); item < kRows * 4; item += kQuantiseThreads) {
    const int row = item / 4, chunk = item % 4;
    const uint32_t* from = shared + chunk * 4 * kStride + row;
    *reinterpret_cast<uint4*>(out + value_offset(row, chunk * 16)) =
        row < D ? make_uint4(from[0], from[kStride], from[2 * kStride], from[3 * kStride])
                : ones<D, !kMeans>(row - D, chunk, left);
  }
}

/// Rows of keys.
template <typename T, int D>
__global__ void __launch_bounds__(kQuantiseThreads)
    half_values(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                const __grid_constant__ Buffers buffers) {
  const RecordThread<D> thread;
  const int bh = thread.b * p.heads + thread.h;
  const Rows<T> rows(p.v, thread.b, thread.h, p.head_dim, thread.column);
  const int first = thread.block * kRecord, left = key_count(p, thread.b) - first;
  const float* centre = buffers.v_centre + static_cast<int64_t>(bh) * D + thread.column;
  uint8_t* out = buffers.v + (static_cast<int64_t>(bh) * sizes.key_blocks + thread.block) * sizes.value_record_bytes;
#pragma unroll 4
  for (int round = 0; round < RecordThread<D>::kRounds; ++round) {
    const int row = thread.row(round);
    float x[kLaneElements];
    unpack(rows.load(first + (row < left ? row : 0)), x);
    Packed<__half> packed;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) packed.element[i] = __float2half_rn(row < left ? x[i] - centre[i] : 0.0F);
    *reinterpret_cast<uint4*>(out + half_value_offset<D>(row, thread.column * 2)) = *reinterpret_cast<uint4*>(&packed);
  }
}

template <typename T, int D>
void launch(const Call& call) {
  const auto run = [&](auto* kernel) {
    kernel<<<record_grid(call.problem, call.sizes.key_blocks), kQuantiseThreads, 0, call.stream>>>(
        call.problem, call.sizes, call.buffers);
  };
  if constexpr (D <= 128) {
    if (call.buffers.v_mean != nullptr) return run(quantise_values<T, D, true>);
  }
  run(quantise_values<T, D, false>);
}

template <typename T, int D>
void launch_half(const Call& call) {
  half_values<T, D><<<record_grid(call.problem, call.sizes.key_blocks), kQuantiseThreads, 0, call.stream>>>(
      call.problem, call.sizes, call.buffers);
}

}  // namespace

void launch_quantise_values(const Call& call) {
  SPARSEREEL_FOR_TYPE(call, launch);
}

void launch_half_values(const Call& call) {
  SPARSEREEL_FOR_TYPE(call, launch_half);
}

}  // namespace sparsereel::attention::cuda
