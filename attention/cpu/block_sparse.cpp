// Packs the heads, then computes tiles of 64 queries. Each thread takes the next tile when it has finished one.
#include "attention/cpu/block_sparse.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "attention/cpu/mean_panels.h"
#include "attention/cpu/packed_heads.h"

namespace sparsereel::attention::cpu {
namespace {

/// Floats whose memory starts on a cache line.
class AlignedFloats {
 public:
  explicit AlignedFloats(int64_t count) : memory_(static_cast<size_t>(count + 16)) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  float* data() { return data_; }

 private:
  std::vector<float> memory_;
  float* data_;
};

Tile make_tile(const KernelParams& params, const BlockMap& map, int64_t b, int64_t h, int64_t block) {
  const int64_t first = block * kBlock;
  Tile tile;
  tile.rows = std::min(kBlock, params.queries - first);
  tile.head_dim = params.head_dim;
  tile.q = params.q.row(b, first, h);
  tile.q_stride = params.q.token_stride;
  tile.kept = map.row(b, h, block);
  tile.key_blocks = map.key_blocks;
  tile.key_length = params.key_length(b);
  tile.causal = params.causal;
  tile.first_row_sees = first + params.keys - params.queries + 1;
  tile.scale = static_cast<float>(params.scale);
  tile.out = params.out.row(b, first, h);
  tile.out_stride = params.out.token_stride;
  if (params.lse != nullptr) tile.lse = params.lse + (b * params.heads + h) * params.queries + first;
  return tile;
}

}  // namespace

int64_t block_sparse_scratch_floats(const KernelParams& params, Arithmetic arithmetic) {
  return PackedHeads::floats(params, arithmetic);
}

Counts block_sparse_attention(const KernelParams& params, const BlockMap& map, std::span<const double> pv_thresholds,
                              Arithmetic arithmetic, const TileKernel& kernel, float* scratch,
                              const ParallelFor& parallel) {
  PackedHeads packed(params, arithmetic, scratch);
  packed.pack(parallel);
  const int64_t pieces = params.batch * params.heads * map.query_blocks;
  std::atomic<int64_t> next{0}, kept{0}, skipped{0}, mean_blocks{0};
  // Tiles keep different numbers of blocks, so a fixed division among the threads would leave some of them idle.
  parallel(pieces, [&](int64_t, int64_t) {
    AlignedFloats tile_scratch(tile_scratch_floats(params.head_dim));
    MeanPanels means(params);
    for (int64_t piece = next++; piece < pieces; piece = next++) {
      const int64_t head = piece / map.query_blocks, b = head / params.heads, h = head % params.heads;
      Tile tile = make_tile(params, map, b, h, piece % map.query_blocks);
      tile.pv_threshold = static_cast<float>(pv_thresholds[static_cast<size_t>(h)]);
      tile.scratch = tile_scratch.data();
      packed.attach(b, h, tile);
      tile.means = means.gather(packed.means(b, h), tile.kept, params.blocks_with_means(b, piece % map.query_blocks));
      const Counts counts = kernel.run(tile);
      kept += counts.kept_blocks;
      skipped += counts.skipped_pv_blocks;
      mean_blocks += blocks_of(tile.means.count);
    }
  });
  return {.kept_blocks = kept, .skipped_pv_blocks = skipped, .mean_blocks = mean_blocks};
}

}  // namespace sparsereel::attention::cpu
