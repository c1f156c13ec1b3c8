// The first steps of a selection by error: the masses of key blocks, and then the lengths of outputs. select.cu
// explains the steps.
#pragma once

#include <cuda_fp16.h>

#include "attention/cuda/select/cta_tiles.cuh"
#include "attention/cuda/select/tile_masses.cuh"

namespace sparsereel::attention::cuda {

constexpr int kMassTiles = 8;  // number of tiles for which a CTA computes masses

/// Computes the masses of key blocks. This needs no V, so it can run while V is still being quantized.
template <int D>
class FindMasses : CtaTiles<D, kMassTiles> {
  using Tiles = CtaTiles<D, kMassTiles>;
  using Tiles::p_, Tiles::buffers_, Tiles::first_tile_, Tiles::warp, Tiles::dense, Tiles::exists;
  using Tiles::visible_blocks, Tiles::pooled, Tiles::key_of, Tiles::queries_of, Tiles::cells_of;

 public:
  using Tiles::Tiles;

  /// Writes the masses of the blocks that a tile sees. RankByError later replaces each mass by a sort key. Each warp
  /// has one tile.
  __device__ void run() const {
    const int tile = first_tile_ + warp();
    if (dense() || !exists(tile)) return;
    const int blocks = visible_blocks(tile);
    if (blocks == 0) return;
    TileMasses<D>(cells_of(tile), queries_of(tile), pooled(buffers_.k_mean), blocks, p_.scale)
        .each([&](int block, float mass) { *key_of(warp(), block) = __float_as_uint(mass); });
  }
};

/// Computes the lengths of outputs from the masses and from the means of V's blocks.
template <int D>
class PredictOutputs : CtaTiles<D, kLengthTiles> {
  static constexpr int kWarps = kLengthTiles;
  using Tiles = CtaTiles<D, kWarps>;
  using Tiles::is_bounded, Tiles::visible_blocks, Tiles::key_head, Tiles::key_of, Tiles::length_sum, Tiles::length_of;
  using Tiles::sizes_, Tiles::buffers_, Tiles::first_tile_, Tiles::with_means_, Tiles::warp, Tiles::lane, Tiles::dense;

 public:
  using Tiles::Tiles;

  /// Computes the output lengths of all tiles of the CTA if errors are predicted, otherwise that of the first tile
  /// only. All threads work on one tile at a time.
  __device__ void run() const {
    const bool all = buffers_.output_lengths != nullptr;
    if (dense() || !(all || is_bounded())) return;
    const int end = min(first_tile_ + (all ? kWarps : 1), sizes_.selection_tiles);
    for (int tile = first_tile_; tile < end; ++tile) {
      const float length = length_of_output(tile);
      if (threadIdx.x > 0) continue;
      if (all) length_of(tile) = length;
      if (is_bounded() && tile % kLengthTiles == 0 && isfinite(length)) add_length(length);
    }
  }

 private:
  /// Computes a tile's output length from the masses of all blocks that the tile sees. Each warp takes every kWarps-th
  /// block. All threads of the CTA call it together; the first warp gets the result.
  __device__ float length_of_output(int tile) const {
    __shared__ float outputs[kWarps][D];
    const int blocks = min(visible_blocks(tile), with_means_);  // a partial last block is always kept and has no mean
    const int64_t head = key_head();
    const uint16_t* means = buffers_.v_block_mean + head * sizes_.key_blocks * D + 2 * lane();
    float2 sums[D / 64] = {};
#pragma unroll 4
    for (int j = warp(); j < blocks; j += kWarps) {
      const float mass = __uint_as_float(*key_of(tile - first_tile_, j));
#pragma unroll
      for (int c = 0; c < D / 64; ++c) {
        const float2 mean =
            __half22float2(*reinterpret_cast<const __half2*>(means + static_cast<int64_t>(j) * D + 64 * c));
        sums[c] = {fmaf(mass, mean.x, sums[c].x), fmaf(mass, mean.y, sums[c].y)};
      }
    }
#pragma unroll
    for (int c = 0; c < D / 64; ++c) *reinterpret_cast<float2*>(&outputs[warp()][64 * c + 2 * lane()]) = sums[c];
    __syncthreads();
    float square = 0;
    if (warp() == 0) {
#pragma unroll
      for (int channel = lane(); channel < D; channel += 32) {
        float output = 0;
        for (int w = 0; w < kWarps; ++w) output += outputs[w][channel];
        output = output * buffers_.v_scale[head * D + channel] + buffers_.v_center[head * D + channel];
        square = fmaf(output, output, square);
      }
      square = warp_sum(square);
    }
    __syncthreads();  // the next call overwrites `outputs`
    return sqrtf(square);
  }

  __device__ void add_length(float length) const {
    const uint32_t bits = __float_as_uint(length);
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
    atomicAdd(reinterpret_cast<unsigned long long*>(&length_sum().bins[LengthSum::bin_of(bits)]),
              LengthSum::units_of(bits));
    atomicAdd(reinterpret_cast<unsigned long long*>(&length_sum().lengths), 1);
  }
};

}  // namespace sparsereel::attention::cuda
