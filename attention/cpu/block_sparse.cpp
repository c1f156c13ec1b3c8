// Packs the heads, then gives rows of 64 queries to threads as they become free.
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

Tile make_tile(const Problem& problem, const BlockMap& map, int64_t b, int64_t h, int64_t block) {
  const int64_t first = block * kBlock;
  Tile tile;
  tile.rows = std::min(kBlock, problem.queries - first);
  tile.head_dim = problem.head_dim;
  tile.q = problem.q.row(b, first, h);
  tile.q_stride = problem.q.token_stride;
  tile.kept = map.row(b, h, block);
  tile.key_blocks = map.key_blocks;
  tile.key_length = problem.key_length(b);
  tile.causal = problem.causal;
  tile.first_row_sees = first + problem.keys - problem.queries + 1;
  tile.scale = static_cast<float>(problem.scale);
  tile.out = problem.out.row(b, first, h);
  tile.out_stride = problem.out.token_stride;
  if (problem.lse != nullptr) tile.lse = problem.lse + (b * problem.heads + h) * problem.queries + first;
  return tile;
}

}  // namespace

int64_t block_sparse_scratch_floats(const Problem& problem, Arithmetic arithmetic) {
  return PackedHeads::floats(problem, arithmetic);
}

Counts block_sparse_attention(const Problem& problem, const BlockMap& map, std::span<const double> pv_thresholds,
                              Arithmetic arithmetic, const TileKernel& kernel, float* scratch,
                              const ParallelFor& parallel) {
  PackedHeads packed(problem, arithmetic, scratch);
  packed.pack(parallel);
  const int64_t pieces = problem.batch * problem.heads * map.query_blocks;
  std::atomic<int64_t> next{0}, kept{0}, skipped{0}, mean_blocks{0};
  // Rows keep different numbers of blocks, so each thread takes a new row when it has finished one.
  parallel(pieces, [&](int64_t, int64_t) {
    AlignedFloats tile_scratch(tile_scratch_floats(problem.head_dim));
    MeanPanels means(problem);
    for (int64_t piece = next++; piece < pieces; piece = next++) {
      const int64_t head = piece / map.query_blocks, b = head / problem.heads, h = head % problem.heads;
      Tile tile = make_tile(problem, map, b, h, piece % map.query_blocks);
      tile.pv_threshold = static_cast<float>(pv_thresholds[static_cast<size_t>(h)]);
      tile.scratch = tile_scratch.data();
      packed.attach(b, h, tile);
      tile.means = means.gather(packed.means(b, h), tile.kept, problem.blocks_with_means(b, piece % map.query_blocks));
      const Counts counts = kernel.run(tile);
      kept += counts.kept_blocks;
      skipped += counts.skipped_pv_blocks;
      mean_blocks += blocks_of(tile.means.count);
    }
  });
  return {.kept_blocks = kept, .skipped_pv_blocks = skipped, .mean_blocks = mean_blocks};
}

}  // namespace sparsereel::attention::cpu
