// The product of int8 rows for compute capability 9.0: warpgroup matrix instructions (wgmma) on tiles that the tensor
// memory accelerator (TMA) copies to shared memory. The two CTAs of a cluster compute neighboring rows, and each copies
// half of the weights to both.
#pragma once

#include <cuda.h>

#include "attention/cuda/hopper/cursor.cuh"
#include "attention/cuda/hopper/ptx.cuh"
#include "attention/cuda/mma.cuh"
#include "models/layers/cuda/product_tiles.cuh"

namespace sparsereel::models::cuda {

namespace ptx = attention::cuda::ptx;

/// The sizes of a CTA's tile. A CTA has one warpgroup whose first thread copies, and two warpgroups that compute 64
/// rows each.
struct WgmmaTile {
  static constexpr int kRows = 128, kOutputs = 256, kDepth = 128, kStages = 4, kCtas = 2, kWarpgroups = 2;
  static constexpr int kThreads = 128 * (kWarpgroups + 1), kCopiedOutputs = kOutputs / kCtas;
  // Before a stage is free, every computing warp of the cluster must arrive.
  static constexpr int kArrivals = kCtas * kWarpgroups * 4;
};

struct WgmmaStage {
  uint8_t x[WgmmaTile::kRows * WgmmaTile::kDepth];
  uint8_t weight[WgmmaTile::kOutputs * WgmmaTile::kDepth];
};

struct alignas(1024) WgmmaMemory {
  WgmmaStage stages[WgmmaTile::kStages];
  float4 outputs[WgmmaTile::kWarpgroups][WgmmaTile::kOutputs / 2];  // scales and biases, one copy for each warpgroup
  uint64_t full[WgmmaTile::kStages], empty[WgmmaTile::kStages];
};
constexpr int kWgmmaBytes = sizeof(WgmmaMemory);
static_assert(kWgmmaBytes <= 232448, "a tile exceeds the shared memory of an SM");

/// TMA's descriptions of the matrices: rows of `depth` bytes, with zeros outside of the matrix.
struct WgmmaMaps {
  CUtensorMap x, weight;
};

using WgmmaCursor = attention::cuda::hopper::Cursor<WgmmaTile>;

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Waits until all threads of the cluster have called this.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Arrives at the barrier that has the same shared address in CTA `cta` of the cluster.
__device__ inline void arrive_at(uint32_t barrier, uint32_t cta) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(cta)
      : "memory");
}

/// Waits as ptx::barrier_wait() does, but also sees what the other CTA did before it arrived.
__device__ inline void cluster_wait(uint32_t barrier, int phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

/// Starts copying a box of a matrix. The copy adds its bytes to `barrier` when it ends.
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

/// Does what copy_box() does, but for both CTAs of the cluster: copies to the same shared address in each of them, and
/// adds the bytes to the barrier of each.
__device__ inline void copy_box_to_both(uint32_t to, const CUtensorMap& map, int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>(3))
      : "memory");
}

#define SPARSEREEL_8(i)                                                                                 \
  "+r"(d[i]), "+r"(d[(i) + 1]), "+r"(d[(i) + 2]), "+r"(d[(i) + 3]), "+r"(d[(i) + 4]), "+r"(d[(i) + 5]), \
      "+r"(d[(i) + 6]), "+r"(d[(i) + 7])
#define SPARSEREEL_32(i) SPARSEREEL_8(i), SPARSEREEL_8((i) + 8), SPARSEREEL_8((i) + 16), SPARSEREEL_8((i) + 24)

/// Starts d = x weight^T, or d += x weight^T if `add` is true, for 64 rows, 256 outputs and 32 columns. x and weight
/// are descriptors of shared memory.
__device__ inline void multiply_256(int (&d)[128], uint64_t x, uint64_t weight, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "
      "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "
      "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
      "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, add;\n}"
      : SPARSEREEL_32(0), SPARSEREEL_32(32), SPARSEREEL_32(64), SPARSEREEL_32(96)
      : "l"(x), "l"(weight), "r"(static_cast<int>(add)));
}
#undef SPARSEREEL_8
#undef SPARSEREEL_32

/// Copies the operands of a CTA's tiles to shared memory, stage by stage. One thread runs this.
class WgmmaProducer {
  using Tile = WgmmaTile;

 public:
  __device__ WgmmaProducer(const WgmmaMaps& maps, WgmmaMemory& shared, int depth)
      : maps_(maps), shared_(shared), depth_(depth) {}

  __device__ void copy_tile(int row, int output) {
    const int half = static_cast<int>(cluster_rank()) * Tile::kCopiedOutputs;
    for (int column = 0; column < depth_; column += Tile::kDepth, cursor_.advance()) {
      WgmmaStage& stage = shared_.stages[cursor_.stage];
      const uint32_t full = attention::cuda::shared_address(&shared_.full[cursor_.stage]);
      cluster_wait(attention::cuda::shared_address(&shared_.empty[cursor_.stage]), cursor_.phase ^ 1);
      ptx::barrier_arrive_expecting(full, sizeof(WgmmaStage));
      copy_box(attention::cuda::shared_address(stage.x), maps_.x, column, row, full);
      copy_box_to_both(attention::cuda::shared_address(stage.weight + half * Tile::kDepth), maps_.weight, column,
                       output + half, full);
    }
  }

 private:
  const WgmmaMaps& maps_;
  WgmmaMemory& shared_;
  const int depth_;
  WgmmaCursor cursor_;
};

/// Multiplies a warpgroup's 64 rows with the weights.
class WgmmaSums {
  using Tile = WgmmaTile;

 public:
  __device__ explicit WgmmaSums(WgmmaMemory& shared) : shared_(shared) {}

  __device__ void add_up(int depth) {
    const int steps = (depth + Tile::kDepth - 1) / Tile::kDepth;
    // The stage that the multiplication of the previous step reads. It may still be running. -1 in the first step.
    int last = -1;
    for (int step = 0; step < steps; ++step, cursor_.advance()) {
      ptx::barrier_wait(attention::cuda::shared_address(&shared_.full[cursor_.stage]), cursor_.phase);
      multiply(shared_.stages[cursor_.stage], step > 0);
      ptx::matrix_wait<1>();
      if (last >= 0) free(last);
      last = cursor_.stage;
    }
    ptx::matrix_wait();
#pragma unroll
    for (int& sum : sums_) ptx::hold(sum);
    free(last);
  }

  /// Writes the results of the rows from first_row on. `outputs` holds the tile's scales and biases (load_outputs()).
  template <typename T>
  __device__ void write(const MultiplyRows& p, int64_t first_row, int first_output, const float4* outputs) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int64_t row = first_row + 16 * warp + lane / 4;
    const ResultRow<T> rows[] = {{p, row}, {p, row + 8}};
#pragma unroll
    for (int j = 0; j < Tile::kOutputs / 8; j += 4)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        rows[half].write_32(first_output + 8 * j, outputs + 4 * j,
                            [&](int tile, int one) { return sums_[4 * (j + tile) + 2 * half + one]; });
  }

 private:
  __device__ void multiply(const WgmmaStage& stage, bool add) {
    constexpr int kGroup = 8 * Tile::kDepth;  // bytes of eight rows, after which the swizzle repeats
    const int first = static_cast<int>(threadIdx.x) / 128 * 64 * Tile::kDepth;
    const uint64_t x = ptx::descriptor(attention::cuda::shared_address(stage.x) + first, kGroup, 1),
                   weight = ptx::descriptor(attention::cuda::shared_address(stage.weight), kGroup, 1);
#pragma unroll
    for (int& sum : sums_) ptx::hold(sum);
    ptx::matrix_fence();
#pragma unroll
    for (int k = 0; k < Tile::kDepth / 32; ++k) multiply_256(sums_, x + 2 * k, weight + 2 * k, add || k > 0);
    ptx::matrix_commit();
  }

  __device__ void free(int stage) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < Tile::kCtas) arrive_at(attention::cuda::shared_address(&shared_.empty[stage]), lane);
  }

  WgmmaMemory& shared_;
  WgmmaCursor cursor_;
  int sums_[Tile::kOutputs / 2];
};

template <typename T>
__global__ void __launch_bounds__(WgmmaTile::kThreads, 1)
    multiply_by_wgmma(const __grid_constant__ WgmmaMaps maps, const __grid_constant__ MultiplyRows p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = WgmmaTile;
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<WgmmaMemory*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; ++i) {
      ptx::barrier_init(attention::cuda::shared_address(&shared.full[i]), 1);
      ptx::barrier_init(attention::cuda::shared_address(&shared.empty[i]), Tile::kArrivals);
    }
    ptx::barrier_init_done();
  }
  cluster_sync();
  const TileOrder order(p, Tile::kCtas * Tile::kRows, Tile::kOutputs);
  const int cluster = static_cast<int>(blockIdx.x) / Tile::kCtas, clusters = static_cast<int>(gridDim.x) / Tile::kCtas;
  const auto first_row = [&](int tile) {
    return (tile * Tile::kCtas + static_cast<int>(cluster_rank())) * Tile::kRows;
  };
  if (threadIdx.x / 128 == Tile::kWarpgroups) {
    ptx::give_registers<40>();
    WgmmaProducer producer(maps, shared, p.depth);
    if (threadIdx.x % 128 == 0) {
      for (int i = cluster; i < order.count(); i += clusters)
        producer.copy_tile(first_row(order.at(i).row), order.at(i).output * Tile::kOutputs);
    }
  } else {
    ptx::take_registers<232>();
    WgmmaSums sums(shared);
    const int warpgroup = static_cast<int>(threadIdx.x) / 128;
    float4* outputs = shared.outputs[warpgroup];
    for (int i = cluster; i < order.count(); i += clusters) {
      const int first_output = order.at(i).output * Tile::kOutputs;
      // Waits until all warps of the warpgroup have read the previous tile's `outputs`.
      ptx::named_wait(1 + warpgroup, 128);
      load_outputs<T>(outputs, p, first_output, Tile::kOutputs, static_cast<int>(threadIdx.x) % 128, 128);
      sums.add_up(p.depth);
      ptx::named_wait(1 + warpgroup, 128);
      sums.write<T>(p, first_row(order.at(i).row) + 64 * warpgroup, first_output, outputs);
    }
  }
  __syncwarp();
  // This CTA must not end yet, because the other CTA may still copy to its memory and arrive at its barriers.
  cluster_sync();
#else
  __trap();
#endif
}

}  // namespace sparsereel::models::cuda
