// V less its centre -> records of e4m3, transposed, or of fp16 for kernels without e4m3.
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

/// 16 keys of the row that sums the P of keys with key % 8 = `residue`; `left`: real keys from the record's start on.
__device__ uint4 ones(int residue, int chunk, int left) {
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

/// Channel rows of 64 keys, then the rows of ones. A word of the transpose in shared memory: four keys of a channel.
template <typename T, int D>
__global__ void __launch_bounds__(kQuantiseThreads, 6)
    quantise_values(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                    const __grid_constant__ Buffers buffers) {
  constexpr int kRowLanes = D / kLaneElements, kWords = kRecord / 4, kStride = D + 2;
  __shared__ uint32_t shared[kWords * kStride];
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
      const int key = word / 4 * 16 + word % 4 * 2 + i / 2 * 8 + i % 2;  // the order of value_position()
      unpack(rows.load(first + (key < left ? key : 0)), x[i]);
#pragma unroll
      for (int c = 0; c < kLaneElements; ++c) x[i][c] = fmaf(x[i][c], inverse[c], shift[c]);
      if (key >= left) zero(x[i]);
    }
#pragma unroll
    for (int c = 0; c < kLaneElements; c += 2)
      *reinterpret_cast<uint2*>(shared + word * kStride + column + c) = make_uint2(
          e4m3x4(x[0][c], x[1][c], x[2][c], x[3][c]), e4m3x4(x[0][c + 1], x[1][c + 1], x[2][c + 1], x[3][c + 1]));
  }
  __syncthreads();
  uint8_t* out = buffers.v + (static_cast<int64_t>(bh) * sizes.key_blocks + thread.block) * sizes.value_record_bytes;
  for (int item = static_cast<int>(threadIdx.x); item < (D + kOnesRows) * 4; item += kQuantiseThreads) {
    const int row = item / 4, chunk = item % 4;
    const uint32_t* from = shared + chunk * 4 * kStride + row;
    *reinterpret_cast<uint4*>(out + value_offset(row, chunk * 16)) =
        row < D ? make_uint4(from[0], from[kStride], from[2 * kStride], from[3 * kStride]) : ones(row - D, chunk, left);
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
  quantise_values<T, D><<<record_grid(call.problem, call.sizes.key_blocks), kQuantiseThreads, 0, call.stream>>>(
      call.problem, call.sizes, call.buffers);
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
