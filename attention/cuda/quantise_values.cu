// V less its centre -> records of e4m3, transposed, or of fp16 for kernels without e4m3.
#include <cuda_fp8.h>

#include "attention/cuda/mma.cuh"
#include "attention/cuda/quantise.cuh"

namespace sparsereel::attention::cuda {
namespace {

__device__ uint32_t e4m3x4(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  return pack_e4m3(a, b, c, d);
#else
  return 0;  // no kernel for this target reads e4m3
#endif
}

/// 16 keys of a row of ones. kByResidue: 1 for keys with key % 8 = row; else for all keys in the rows of a set
/// (records.h). left: real keys from the record's start on.
template <int D, bool kByResidue>
__device__ uint4 ones(int row, int chunk, int left) {
  constexpr uint32_t kOne = 0x38;
  const bool in_set = ones_sets(D) == 1 || row / 4 % 2 == row / kOnesRows;
  if (!kByResidue && left >= kRecord) {
    const uint32_t four = in_set ? kOne * 0x01010101U : 0;
    return make_uint4(four, four, four, four);
  }
  uint32_t word[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int key = chunk * 16 + i, position = value_position(i);
    if (key < left && (kByResidue ? i % 8 == row : in_set)) word[position / 4] |= kOne << 8 * (position % 4);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

/// The key of position i of a word of four, of 16 words: 0 1 8 9, 2 3 10 11, ...; the order of value_position().
__device__ int key_of(int word, int i) {
  return word / 4 * 16 + word % 4 * 2 + i / 2 * 8 + i % 2;
}

/// Where the transpose of a record lies in shared memory: words of four keys of a channel.
template <int D>
struct Transpose {
  static constexpr int kWords = kRecord / 4, kStride = D + 2;

  alignas(16) uint32_t word[kWords * kStride];

  __device__ void put(int at, int column, const uint32_t (&words)[kLaneElements]) {
#pragma unroll
    for (int c = 0; c < kLaneElements; c += 2)
      *reinterpret_cast<uint2*>(word + at * kStride + column + c) = make_uint2(words[c], words[c + 1]);
  }

  /// 16 keys of a channel.
  __device__ uint4 get(int row, int chunk) const {
    const uint32_t* from = word + chunk * 4 * kStride + row;
    return make_uint4(from[0], from[kStride], from[2 * kStride], from[3 * kStride]);
  }
};

/// Channel rows of 64 keys, then the rows of ones.
template <typename T, int D>
__global__ void __launch_bounds__(kQuantiseThreads, 6)
    quantise_values(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                    const __grid_constant__ Buffers buffers) {
  constexpr int kRowLanes = D / kLaneElements, kWords = Transpose<D>::kWords;
  __shared__ Transpose<D> transpose;
  const RecordThread<D> thread;
  const int bh = thread.b * p.heads + thread.h, column = thread.column;
  const Rows<T> rows(p.v, thread.b, thread.h, p.head_dim, thread.column);
  const int first = thread.block * kRecord, left = key_count(p, thread.b) - first;
  float inverse[kLaneElements], shift[kLaneElements];  // v -> v * inverse + shift
  const int64_t at = static_cast<int64_t>(bh) * D + column;
  load_row(buffers.v_scale + at, inverse);
  load_row(buffers.v_centre + at, shift);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    inverse[i] = __fdividef(1.0F, inverse[i]);
    shift[i] = -shift[i] * inverse[i];
  }
#pragma unroll 1
  for (int word = static_cast<int>(threadIdx.x) / kRowLanes; word < kWords; word += kQuantiseThreads / kRowLanes) {
    float x[4][kLaneElements];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = key_of(word, i);
      unpack(rows.load(first + (key < left ? key : 0)), x[i]);
#pragma unroll
      for (int c = 0; c < kLaneElements; ++c) x[i][c] = fmaf(x[i][c], inverse[c], shift[c]);
      if (key >= left) zero(x[i]);
    }
    uint32_t words[kLaneElements];
#pragma unroll
    for (int c = 0; c < kLaneElements; ++c) words[c] = e4m3x4(x[0][c], x[1][c], x[2][c], x[3][c]);
    transpose.put(word, column, words);
  }
  __syncthreads();
  uint8_t* out = buffers.v + (static_cast<int64_t>(bh) * sizes.key_blocks + thread.block) * sizes.value_record_bytes;
  for (int item = static_cast<int>(threadIdx.x); item < (D + kOnesRows) * 4; item += kQuantiseThreads) {
    const int row = item / 4, chunk = item % 4;
    *reinterpret_cast<uint4*>(out + value_offset(row, chunk * 16)) =
        row < D ? transpose.get(row, chunk) : ones<D, true>(row - D, chunk, left);
  }
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

/// What quantise_values() does, for V less the mean of the record, and that mean. What rounding adds to the sum of the
/// record's keys is taken off the mean: where all keys weigh the same, it cancels.
template <typename T, int D>
__global__ void __launch_bounds__(kQuantiseThreads, D == 64 ? 7 : 5)
    quantise_values_less_mean(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                              const __grid_constant__ Buffers buffers) {
  constexpr int kRowLanes = D / kLaneElements, kTogether = kQuantiseThreads / kRowLanes;
  constexpr int kRounds = Transpose<D>::kWords / kTogether;
  __shared__ Transpose<D> transpose;
  alignas(16) __shared__ float raw_mean[D];
  __shared__ float record_mean[D];
  const RecordThread<D> thread;
  const int bh = thread.b * p.heads + thread.h, column = thread.column;
  const Rows<T> rows(p.v, thread.b, thread.h, p.head_dim, column);
  const int first = thread.block * kRecord, left = key_count(p, thread.b) - first;
  const int first_word = static_cast<int>(threadIdx.x / kRowLanes);
  Packed<T> kept[kRounds][4];
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = key_of(first_word + round * kTogether, i);
      kept[round][i] = rows.load(first + (key < left ? key : 0));
      if (key >= left) kept[round][i] = {};
    }
  const int64_t at = static_cast<int64_t>(bh) * D + column;
  float mean[kLaneElements], inverse[kLaneElements], centre[kLaneElements];
  load_row(buffers.v_scale + at, inverse);
  load_row(buffers.v_centre + at, centre);
  Pool<D> pool;
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float x[kLaneElements];
      unpack(kept[round][i], x);
      unpack_anew(kept[round][i]);
      pool.add(x, 1);
    }
  const float share = reciprocal(static_cast<float>(max(min(left, kRecord), 1)));
  pool.write(share, raw_mean);
  load_row(raw_mean + column, mean);
#pragma unroll
  for (int c = 0; c < kLaneElements; ++c) {
    inverse[c] = reciprocal(inverse[c]);
    if (threadIdx.x < kRowLanes) record_mean[column + c] = (mean[c] - centre[c]) * inverse[c];
    mean[c] *= inverse[c];
  }
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int word = first_word + round * kTogether;
    float x[4][kLaneElements];
    uint32_t real = 0, words[kLaneElements];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unpack(kept[round][i], x[i]);
      if (key_of(word, i) < left) real |= 0xFFU << 8 * i;
    }
#pragma unroll
    for (int c = 0; c < kLaneElements; ++c) {
      const auto e4m3 = [&](int i) { return fmaf(x[i][c], inverse[c], -mean[c]); };
      words[c] = e4m3x4(e4m3(0), e4m3(1), e4m3(2), e4m3(3)) & real;
    }
    transpose.put(word, column, words);
  }
  __syncthreads();
  const int64_t record = static_cast<int64_t>(bh) * sizes.key_blocks + thread.block;
  uint8_t* out = buffers.v + record * sizes.value_record_bytes;
  uint16_t* means = buffers.v_mean + record * D;
#pragma unroll
  for (int i = 0; i < D * 4 / kQuantiseThreads; ++i) {
    const unsigned item = threadIdx.x + i * kQuantiseThreads;
    const int row = static_cast<int>(item / 4), chunk = static_cast<int>(item % 4);
    const uint4 keys = transpose.get(row, chunk);
    *reinterpret_cast<uint4*>(out + value_offset(row, chunk * 16)) = keys;
    const __half2 pair = __hadd2(__hadd2(halves_added(keys.x), halves_added(keys.y)),
                                 __hadd2(halves_added(keys.z), halves_added(keys.w)));
    float sum = __low2float(pair) + __high2float(pair);
    sum += __shfl_xor_sync(~0U, sum, 1);
    sum += __shfl_xor_sync(~0U, sum, 2);
    const float its_mean = fminf(fmaxf(record_mean[row] - sum * share, -kHalfMax), kHalfMax);
    if (chunk == 0) means[row] = __half_as_ushort(__float2half_rn(its_mean));
  }
  for (int item = static_cast<int>(threadIdx.x); item < kOnesRows * ones_sets(D) * 4; item += kQuantiseThreads)
    *reinterpret_cast<uint4*>(out + value_offset(D + item / 4, item % 4 * 16)) =
        ones<D, false>(item / 4, item % 4, left);
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
    if (call.buffers.v_mean != nullptr) return run(quantise_values_less_mean<T, D>);
  }
  run(quantise_values<T, D>);
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
