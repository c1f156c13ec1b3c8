// The product of int8 rows for every GPU from compute capability 8.0 on: mma.sync multiplies tiles in shared memory.
// cp.async copies tiles up to kStages - 1 steps ahead.
#pragma once

#include "attention/cuda/mma.cuh"
#include "models/layers/cuda/product_tiles.cuh"

namespace sparsereel::models::cuda {

/// The sizes of a thread block's tile. Its 8 warps compute 64 x 64 results each.
struct MmaTile {
  static constexpr int kRows = 128, kOutputs = 256, kDepth = 64, kStages = 4, kThreads = 256;
  static constexpr int kWarpRows = 64, kWarpOutputs = 64, kRowTiles = kWarpRows / 16, kOutputTiles = kWarpOutputs / 8;
  static constexpr int kStageBytes = (kRows + kOutputs) * kDepth;
  static constexpr int kOutputBytes = kOutputs / 2 * 16;  // scales and biases, see load_outputs()
  static constexpr int kSharedBytes = kStages * kStageBytes + kOutputBytes;
  static_assert(kSharedBytes <= 99 * 1024, "more than a block of sm_86 and sm_89 has");
};

/// Copies 16 bytes to shared memory, or writes zeros if `exists` is false.
__device__ inline void copy_or_clear(uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

/// Returns the offset in bytes of a 16-byte chunk of a 64-byte row. The XOR puts equal chunks of eight neighboring rows
/// into different banks.
__device__ inline uint32_t place_of(int row, int chunk) {
  return static_cast<uint32_t>(row * MmaTile::kDepth + ((chunk ^ (row >> 1 & 3)) << 4));
}

/// Computes the sums of a warp's part of a tile, in a loop over the depth.
class MmaSums {
  using Tile = MmaTile;

 public:
  __device__ MmaSums(const MultiplyRows& p, int64_t first_row, int first_output, uint32_t memory)
      : p_(p), first_row_(first_row), first_output_(first_output), memory_(memory) {}

  __device__ void run() {
    const int steps = (p_.depth + Tile::kDepth - 1) / Tile::kDepth;
#pragma unroll
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) {
      if (stage < steps) copy(stage, stage);
      attention::cuda::commit_copies();
    }
    for (int step = 0; step < steps; ++step) {
      attention::cuda::wait_copies<Tile::kStages - 2>();
      __syncthreads();
      const int next = step + Tile::kStages - 1;
      if (next < steps) copy(next, next % Tile::kStages);
      attention::cuda::commit_copies();
      multiply(memory_ + step % Tile::kStages * Tile::kStageBytes);
    }
  }

  /// Writes the results. `outputs` holds the tile's scales and biases (load_outputs()).
  template <typename T>
  __device__ void write(const float4* outputs) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const ResultRow<T> row(p_, first_row_ + warp_row() + 16 * i + 8 * half + lane / 4);
#pragma unroll
        for (int j = 0; j < Tile::kOutputTiles; j += 4)
          row.write_32(first_output_ + warp_output() + 8 * j, outputs + warp_output() / 2 + 4 * j,
                       [&](int tile, int one) { return sums_[i][j + tile][2 * half + one]; });
      }
  }

 private:
  static __device__ int warp_row() {
    return static_cast<int>(threadIdx.x) / 32 % 2 * Tile::kWarpRows;
  }
  static __device__ int warp_output() {
    return static_cast<int>(threadIdx.x) / 64 * Tile::kWarpOutputs;
  }

  __device__ void copy(int step, int stage) const {
    constexpr int kChunks = Tile::kDepth / 16;
    const int chunk = static_cast<int>(threadIdx.x) % kChunks, column = step * Tile::kDepth + 16 * chunk;
    const uint32_t to = memory_ + stage * Tile::kStageBytes;
#pragma unroll
    for (int i = 0; i < (Tile::kRows + Tile::kOutputs) * kChunks / Tile::kThreads; ++i) {
      const int row = static_cast<int>(threadIdx.x) / kChunks + i * (Tile::kThreads / kChunks);
      const bool of_x = row < Tile::kRows;
      const int64_t from = of_x ? first_row_ + row : first_output_ + row - Tile::kRows;
      const bool exists = from < (of_x ? p_.rows : p_.outputs) && column < p_.depth;
      copy_or_clear(to + place_of(row, chunk),
                    (of_x ? p_.x : p_.weight) + (exists ? from * p_.depth + column : int64_t{0}), exists);
    }
  }

  __device__ void multiply(uint32_t stage) {
    const int lane = static_cast<int>(threadIdx.x) % 32, x_row = warp_row() + lane % 16,
              weight_row = Tile::kRows + warp_output() + lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < Tile::kDepth / 32; ++k) {
      uint32_t x[Tile::kRowTiles][4], weight[Tile::kOutputTiles / 2][4];
#pragma unroll
      for (int i = 0; i < Tile::kRowTiles; ++i)
        attention::cuda::load_matrices(x[i], stage + place_of(x_row + 16 * i, 2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < Tile::kOutputTiles / 2; ++j)
        attention::cuda::load_matrices(weight[j], stage + place_of(weight_row + 16 * j, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < Tile::kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < Tile::kOutputTiles; ++j)
          attention::cuda::multiply_int8(sums_[i][j], x[i], weight[j / 2][j % 2 * 2], weight[j / 2][j % 2 * 2 + 1]);
    }
  }

  const MultiplyRows& p_;
  const int64_t first_row_;
  const int first_output_;
  const uint32_t memory_;
  int sums_[Tile::kRowTiles][Tile::kOutputTiles][4] = {};
};

template <typename T>
__global__ void __launch_bounds__(MmaTile::kThreads, 1) multiply_by_mma(const __grid_constant__ MultiplyRows p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const TileOrder order(p, MmaTile::kRows, MmaTile::kOutputs);
  const auto [row_tile, output_tile] = order.at(static_cast<int>(blockIdx.x));
  auto* outputs = reinterpret_cast<float4*>(memory + MmaTile::kStages * MmaTile::kStageBytes);
  load_outputs<T>(outputs, p, output_tile * MmaTile::kOutputs, MmaTile::kOutputs, static_cast<int>(threadIdx.x),
                  MmaTile::kThreads);
  MmaSums sums(p, static_cast<int64_t>(row_tile) * MmaTile::kRows, output_tile * MmaTile::kOutputs,
               attention::cuda::shared_address(memory));
  sums.run();
  sums.write<T>(outputs);
}

}  // namespace sparsereel::models::cuda
