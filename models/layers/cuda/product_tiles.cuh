// The product of int8 rows: the order of its tiles, and the scaling and writing of its results.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/cuda/packed.cuh"
#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {

/// The order in which a product's tiles are computed. It goes through kBand tiles of rows before it goes on to the next
/// outputs. So thread blocks that run at the same time read the same rows and weights, which stay in the L2 cache.
struct TileOrder {
  static constexpr int kBand = 16;
  int row_tiles, output_tiles;

  struct Place {
    int row, output;
  };

  __host__ __device__ TileOrder(const MultiplyRows& p, int tile_rows, int tile_outputs)
      : row_tiles(static_cast<int>((p.rows + tile_rows - 1) / tile_rows)),
        output_tiles((p.outputs + tile_outputs - 1) / tile_outputs) {}

  __host__ __device__ int count() const { return row_tiles * output_tiles; }

  __device__ Place at(int index) const {
    const int band = index / (kBand * output_tiles), first = band * kBand, rows = min(kBand, row_tiles - first),
              within = index - first * output_tiles;
    return {first + within % rows, within / rows};
  }
};

__device__ inline __half2 pair_of(float a, float b, __half) {
  return __floats2half2_rn(a, b);
}
__device__ inline __nv_bfloat162 pair_of(float a, float b, __nv_bfloat16) {
  return __floats2bfloat162_rn(a, b);
}

/// Exchanges words among four neighboring lanes, like the transpose of a 4 x 4 matrix: word i of lane t becomes word t
/// of lane i.
__device__ inline void transpose_among_four(uint32_t (&word)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (threadIdx.x & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      uint32_t &low = word[i], &high = word[i | bit];
      const uint32_t received = __shfl_xor_sync(0xFFFFFFFFU, upper ? low : high, bit);
      (upper ? low : high) = received;
    }
  }
}

/// Loads the scales and biases of a tile's outputs to shared memory, so that reading them later does not delay the
/// results. Each float4 is for two neighboring outputs: scale, scale, bias, bias.
template <typename T>
__device__ inline void load_outputs(float4* to, const MultiplyRows& p, int first, int count, int thread, int threads) {
  for (int i = thread; i < count / 2; i += threads) {
    const int column = first + 2 * i;
    if (column >= p.outputs) return;
    const T* bias = static_cast<const T*>(p.bias) + column;
    const bool has_bias = p.bias != nullptr;
    to[i] = make_float4(p.weight_scale[column], p.weight_scale[column + 1],
                        has_bias ? attention::cuda::to_float(bias[0]) : 0,
                        has_bias ? attention::cuda::to_float(bias[1]) : 0);
  }
}

/// Writes a row of results. Sums are scaled, and biases added, in the same order and with the same rounding as on a CPU
/// (layers/int8.cpp). Four lanes share a row, as the matrix instructions leave it: lane t has outputs 2 t and 2 t + 1
/// of every eight.
template <typename T>
struct ResultRow {
  const MultiplyRows& p;
  int64_t row;
  float x_scale;

  __device__ ResultRow(const MultiplyRows& call, int64_t of_row)
      : p(call), row(of_row), x_scale(row < p.rows ? p.x_scale[row] : 0) {}

  /// Writes 32 outputs from `first` on, together with the row's other three lanes. All lanes of a warp must call this
  /// together. `outputs` holds scales and biases (load_outputs()) from output `first` on. sums(i, j) returns this
  /// lane's output j of the i-th eight.
  template <typename Sums>
  __device__ void write_32(int first, const float4* outputs, const Sums& sums) const {
    const int lane = static_cast<int>(threadIdx.x) % 4;
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = pair(outputs[4 * i + lane], sums(i, 0), sums(i, 1));
    transpose_among_four(word);
    const int column = first + 8 * lane;
    if (row < p.rows && column < p.outputs)
      *reinterpret_cast<uint4*>(static_cast<T*>(p.out) + row * p.out_stride + column) =
          make_uint4(word[0], word[1], word[2], word[3]);
  }

 private:
  __device__ uint32_t pair(const float4& of, int a, int b) const {
    const auto both = pair_of(__fadd_rn(__fmul_rn(__fmul_rn(static_cast<float>(a), x_scale), of.x), of.z),
                              __fadd_rn(__fmul_rn(__fmul_rn(static_cast<float>(b), x_scale), of.y), of.w), T{});
    return reinterpret_cast<const uint32_t&>(both);
  }
};

}  // namespace sparsereel::models::cuda
