// Common parts of the kernels that make records of means. A CTA makes one record of means. Each of its warps handles
// one of the 16 blocks of 64 tokens whose means the record holds.
#pragma once

#include <cuda_bf16.h>

#include "attention/cuda/kernels.h"
#include "attention/cuda/records.h"
#include "attention/cuda/visible.cuh"
#include "attention/cuda/warp.cuh"

namespace sparsereel::attention::cuda {

constexpr int kMeanThreads = 32 * kMeanBlocks;

/// The block that a warp handles, and the record that its CTA makes. grid: records of means, batch x heads of k and v.
struct MeanWarp {
  int index = static_cast<int>(blockIdx.x), bk = static_cast<int>(blockIdx.y);
  int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int blocks;  // number of blocks of this record that have means, from 0 to 16

  __device__ MeanWarp(const KernelParams& p, const Sizes& sizes) {
    const int video = video_part(p.keys, p.text_tokens);
    blocks = min(blocks_with_means(key_count(p, bk / sizes.kv_heads), video) - index * kMeanBlocks, kMeanBlocks);
  }

  __device__ bool real() const { return warp < blocks; }
  /// from() returns the index of the record of this warp's block, to() the index of the record of means.
  __device__ int64_t from(const Sizes& sizes) const {
    return static_cast<int64_t>(bk) * sizes.key_records + index * kMeanBlocks + warp;
  }
  __device__ int64_t to(const Sizes& sizes) const {
    return static_cast<int64_t>(bk) * sizes.key_records + sizes.key_blocks + index;
  }
  /// Returns the index of this warp's block in arrays that have no entries for records of means.
  __device__ int64_t block(const Sizes& sizes) const {
    return static_cast<int64_t>(bk) * sizes.key_blocks + index * kMeanBlocks + warp;
  }
};

inline dim3 mean_grid(const Sizes& sizes) {
  return {static_cast<unsigned>(sizes.mean_records), static_cast<unsigned>(sizes.batch_kv_heads)};
}

}  // namespace sparsereel::attention::cuda
