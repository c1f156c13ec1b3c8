// Computes the means of K's cells as int8 records, and the variances within cells, from the records of K.
#include "attention/cuda/launched.cuh"
#include "attention/cuda/prepass/means.cuh"

namespace sparsereel::attention::cuda {
namespace {

/// Divides a record of 64 rows of D bytes among the lanes of a warp. For each of kSteps cells, a lane has kColumns
/// words of four columns.
template <int D>
struct Lanes {
  static constexpr int kWords = D / 4;
  static constexpr int kRowLanes = kWords < 32 ? kWords : 32;
  static constexpr int kColumns = kWords / kRowLanes;
  static constexpr int kTogether = 32 / kRowLanes;  // number of cells that the warp handles at once
  static constexpr int kSteps = kBlockCells / kTogether;

  __device__ static int cell(int step, int lane) { return step * kTogether + lane / kRowLanes; }
  __device__ static int column(int i, int lane) { return 4 * (i * kRowLanes + lane % kRowLanes); }
};

__device__ uint32_t load_word(const uint8_t* from) {
  return __ldg(reinterpret_cast<const uint32_t*>(from));
}

__device__ void store_bf16(const float (&x)[4], uint16_t* to) {
  const auto pair = [](float a, float b) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const uint32_t&>(two);
  };
  *reinterpret_cast<uint2*>(to) = make_uint2(pair(x[0], x[1]), pair(x[2], x[3]));
}

/// Computes the sums of four columns over the 16 keys of a cell. Adds the sums of their squares to `square`.
template <int D>
__device__ void sum_cell(const uint8_t* record, int cell, int column, const float (&scale)[kKeyGroups], float (&sum)[4],
                         float (&square)[4]) {
  uint32_t word[kCell];
#pragma unroll
  for (int i = 0; i < kCell; ++i) word[i] = load_word(record + record_offset<D>(cell * kCell + i, column));
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    sum[c] = 0;
#pragma unroll
    for (int group = 0; group < kKeyGroups; ++group) {
      int whole = 0, squares = 0;  // integer sums, which are exact
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t w = word[i / 2 * 8 + 2 * group + i % 2];
        whole = __dp4a(static_cast<int>(w), 1 << 8 * c, whole);
        squares = __dp4a(static_cast<int>(w & 0xFFU << 8 * c), static_cast<int>(w), squares);
      }
      sum[c] = fmaf(static_cast<float>(whole), scale[group], sum[c]);
      square[c] = fmaf(static_cast<float>(squares), scale[group] * scale[group], square[c]);
    }
  }
}

/// Writes the means of a warp's block in int8. longest: largest length of all rows of the record so far, as the bits of
/// a float; the function raises it.
template <int D>
__device__ void write_means(const float (&mean)[Lanes<D>::kSteps][Lanes<D>::kColumns][4], const MeanWarp& at,
                            float scale, float inverse, uint8_t* out, int& longest) {
  using L = Lanes<D>;
#pragma unroll
  for (int step = 0; step < L::kSteps; ++step) {
    const int cell = L::cell(step, at.lane);
    int square = 0;
#pragma unroll
    for (int i = 0; i < L::kColumns; ++i) {
      uint32_t word = 0;
#pragma unroll
      for (int c = 0; c < 4; ++c)
        word |= (static_cast<uint32_t>(__float2int_rn(mean[step][i][c] * inverse)) & 0xFFU) << 8 * c;
      square = __dp4a(static_cast<int>(word), static_cast<int>(word), square);
      *reinterpret_cast<uint32_t*>(out + record_offset<D>(mean_key(at.warp, cell), L::column(i, at.lane))) = word;
    }
#pragma unroll
    for (int lanes = L::kRowLanes / 2; lanes > 0; lanes /= 2) square += __shfl_xor_sync(~0U, square, lanes);
    const float length = sqrtf(static_cast<float>(square)) * scale;
    if (at.lane % L::kRowLanes == 0) atomicMax(&longest, __float_as_int(length));
  }
}

template <int D>
__global__ void __launch_bounds__(kMeanThreads)
    means_of_keys(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                  const __grid_constant__ Buffers buffers) {
  using L = Lanes<D>;
  const MeanWarp at(p, sizes);
  float mean[L::kSteps][L::kColumns][4] = {}, most = 0;
  if (at.real()) {
    const uint8_t* record = buffers.k + at.from(sizes) * kRecord * D;
    const float4 four = __ldg(reinterpret_cast<const float4*>(buffers.k_scale) + at.from(sizes));
    const float scale[kKeyGroups] = {four.x, four.y, four.z, four.w};
    uint16_t* variances = buffers.k_variance + static_cast<int64_t>(at.bk) * sizes.pooled_blocks * D;
#pragma unroll
    for (int i = 0; i < L::kColumns; ++i) {
      float square[4] = {};
#pragma unroll
      for (int step = 0; step < L::kSteps; ++step) {
        float(&m)[4] = mean[step][i];
        sum_cell<D>(record, L::cell(step, at.lane), L::column(i, at.lane), scale, m, square);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          m[c] *= 1.0F / kCell;
          most = fmaxf(most, fabsf(m[c]));
          square[c] = fmaf(-kCell * m[c], m[c], square[c]);
        }
      }
      if (buffers.k_variance == nullptr) continue;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (L::kTogether == 2) square[c] += __shfl_xor_sync(~0U, square[c], 16);
        square[c] = fmaxf(square[c] * (1.0F / kRecord), 0.0F);
      }
      if (at.lane < L::kRowLanes)
        store_bf16(square, variances + pooled_offset<D>(at.index * kMeanBlocks + at.warp, L::column(i, at.lane)));
    }
  }
  __shared__ float largest[kMeanBlocks];
  __shared__ int longest;
  if (threadIdx.x == 0) longest = 0;
  most = warp_max(most);
  if (at.lane == 0) largest[at.warp] = most;
  __syncthreads();
  const int group = at.warp % 4;  // warps with equal `group` have blocks whose cells share a scale: see mean_key()
  most = fmaxf(fmaxf(largest[group], largest[4 + group]), fmaxf(largest[8 + group], largest[12 + group]));
  const float scale = most * (1 / kInt8Max) + kInt8MinScale, inverse = 1.0F / scale;
  if (at.warp < 4 && at.lane == 0) buffers.k_scale[at.to(sizes) * kKeyGroups + group] = scale;
  write_means<D>(mean, at, scale, inverse, buffers.k + at.to(sizes) * kRecord * D, longest);
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<int*>(buffers.longest) + sizes.batch_heads + at.bk, longest);
}

}  // namespace

void launch_means_of_keys(const LaunchContext& context) {
  if (context.sizes.mean_records == 0) return;
  const auto run = [&](auto* kernel) { context.start(kernel, mean_grid(context.sizes), kMeanThreads); };
  if (context.sizes.D == 64) run(means_of_keys<64>);
  if (context.sizes.D == 128) run(means_of_keys<128>);
  if (context.sizes.D == 256) run(means_of_keys<256>);
}

}  // namespace sparsereel::attention::cuda
