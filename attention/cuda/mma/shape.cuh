// Tile sizes and shared memory of the mma attention kernel.
#pragma once

#include "attention/cuda/scratch.h"

namespace sparsereel::attention::cuda {

/// The sizes of the kernel for one padded head_dim D.
template <Kernel kKernel, int D>
struct MmaShape {
  static constexpr bool kInt8 = traits_of(kKernel).values == ValueFormat::int8;  // true: P.V in int8; false: in fp16
  static constexpr int kRows = traits_of(kKernel).tile_rows;
  static constexpr int kGroups = kRows / kRecord;  // groups of 64 rows, each with its own Cover in a list entry
  // Number of row tiles (16 rows) of a warp. With two tiles a warp reads half as much from shared memory per row, but
  // the sums of two tiles fit into registers only for D = 64.
  static constexpr int kRowTiles = D == 64 ? 2 : 1;
  static constexpr int kThreads = kRows / (16 * kRowTiles) * 32;
  static constexpr int kGroupThreads = kThreads / kGroups;
  static constexpr int kChannelTiles = D / 8;
  static constexpr int kKeyBytes = kRecord * D;
  static constexpr int kValueBytes = value_record_bytes(traits_of(kKernel).values, D);
  static constexpr int kStages = D == 256 ? 2 : 3;  // with D = 256, only two fit into the 99 KB of sm_86 and sm_89
  /// True if a CTA keeps its queries in shared memory, because there are not enough registers.
  static constexpr bool kSharedQueries = D == 256 && kInt8;
  /// Number of CTAs per SM for which the compiler must leave registers. 0 leaves the choice to the compiler, which then
  /// spills less.
  static constexpr int kMinCtas = D == 64 ? 2 : kSharedQueries ? 1 : 0;

  /// The data of one key block.
  struct alignas(128) Stage {
    uint8_t k[kKeyBytes];
    uint8_t v[kValueBytes];
    float k_scale[kKeyGroups];
  };
  struct SharedMemoryPlan {
    Stage stages[kStages];
    alignas(128) uint8_t q[kSharedQueries ? kRows * D : 1];
  };
  static constexpr int kSharedBytes = sizeof(SharedMemoryPlan);
  static_assert(kSharedBytes <= 99 * 1024);
};

}  // namespace sparsereel::attention::cuda
