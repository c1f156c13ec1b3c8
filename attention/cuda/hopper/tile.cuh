// Shape of the Hopper kernel's work, the layout of its shared memory, and the thread that fills it.
#pragma once

#include "attention/cuda/hopper/ptx.cuh"
#include "attention/cuda/kernels.h"
#include "attention/cuda/mma.cuh"
#include "attention/cuda/tile_index.h"
#include "attention/cuda/tile_order.cuh"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda::hopper {

/// The work of a CTA, which occupies a whole SM. It has a producer, which copies, and three warpgroups of 64 query rows
/// each, which compute. A stage of the pipeline holds two subtiles of keys; each softmax works on one subtile.
/// The kernel for head_dim 96 uses records of 128 channels and does not multiply the last 32, which are zeros.
template <int kHeadDim>
struct Tile {
  static constexpr int D = kHeadDim == 96 ? 128 : kHeadDim;  // channels per record
  static constexpr int kChannels = kHeadDim;                 // channels that are multiplied
  static constexpr int kWarpgroups = 3;
  static constexpr int kRows = kWarpgroups * kRecord;
  static_assert(kRows == traits_of(Kernel::hopper).tile_rows);
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  static constexpr int kKeys = D == 64 ? 128 : 64;  // keys per subtile; as many as fit into registers
  static constexpr int kSubtileRecords = kKeys / kRecord;
  static constexpr int kStageRecords = 2 * kSubtileRecords;
  static constexpr int kStages = D == 64 ? 4 : 3;
  static constexpr int kOutputs = (kChannels + kOnesRows) / 2;  // accumulators of P.V per thread
  static constexpr int kMeans = 64;  // blocks whose means are added to O together, see Output
#ifdef SPARSEREEL_RACECHECK
  static constexpr int kArrivals = 128 * kWarpgroups;  // racecheck credits an arrival to the arriving thread only
#else
  static constexpr int kArrivals = 4 * kWarpgroups;  // one lane arrives for its warp
#endif

  static constexpr int kKeyBytes = kRecord * D;
  static constexpr int kValueBytes = kRecord * (kChannels + kOnesRows);
  static constexpr int kValueRecordBytes = value_record_bytes(traits_of(Kernel::hopper).values, D);
  static constexpr int kMeanPitch = 2 * kChannels + 16;  // bytes per mean; avoids bank conflicts of ldmatrix
  static constexpr int kMeanBytes = kMeans * kMeanPitch;
  static constexpr int kQueryBytes = kRows * D;

  // Offsets in shared memory.
  static constexpr int kQueries = 0;
  static constexpr int kKeyStages = kQueries + kQueryBytes;
  static constexpr int kValueStages = kKeyStages + kStages * kStageRecords * kKeyBytes;
  static constexpr int kRowMemory = kValueStages + kStages * kStageRecords * kValueBytes;  // see Output
  static constexpr int kRowBytes = 256;
  static constexpr int kMeanRing = kRowMemory + kRows * kRowBytes;  // a ring of two times kMeans
  static constexpr int kKeyScales = kMeanRing + 2 * kMeanBytes;
  static constexpr int kEntries = kKeyScales + kStages * kStageRecords * kKeyGroups * 4;
  static constexpr int kQueryScales = kEntries + (kStages * kStageRecords * 4 + 15) / 16 * 16;
  static constexpr int kBarriers = kQueryScales + kRows * 4;
  static constexpr int kWork = (kBarriers + 8 * (4 * kStages + 4) + 15) / 16 * 16;
  static constexpr int kSkipVotes = kWork + 32;  // bytes [2][kWarpgroups][4]
  static constexpr int kBytes = kSkipVotes + 8 * kWarpgroups;
  static_assert(kBytes <= 232448, "a tile exceeds the shared memory of an SM");
  static_assert(kEntries % 16 == 0 && kQueryScales % 16 == 0 && kBarriers % 8 == 0, "alignment");
};

/// The barriers of the pipeline. The producer's copies complete a "full" barrier, and every consumer warp arrives at an
/// "empty" one. means_empty() has one barrier for each half of the ring of means.
template <typename T>
struct Barriers {
  uint32_t base;  // address in shared memory

  __device__ uint32_t key_full(int stage) const { return at(stage); }
  __device__ uint32_t key_empty(int stage) const { return at(T::kStages + stage); }
  __device__ uint32_t value_full(int stage) const { return at(2 * T::kStages + stage); }
  __device__ uint32_t value_empty(int stage) const { return at(3 * T::kStages + stage); }
  __device__ uint32_t query_full() const { return at(4 * T::kStages); }
  __device__ uint32_t query_empty() const { return at(4 * T::kStages + 1); }
  __device__ uint32_t means_empty(int half) const { return at(4 * T::kStages + 2 + half); }

  __device__ void init() const {
    for (int i = 0; i < T::kStages; ++i) {
      ptx::barrier_init(key_full(i), 1);
      ptx::barrier_init(value_full(i), 1);
      ptx::barrier_init(key_empty(i), T::kArrivals);
      ptx::barrier_init(value_empty(i), T::kArrivals);
    }
    ptx::barrier_init(query_full(), 1);
    ptx::barrier_init(query_empty(), T::kArrivals);
    ptx::barrier_init(means_empty(0), T::kArrivals);
    ptx::barrier_init(means_empty(1), T::kArrivals);
    ptx::barrier_init_done();
  }

 private:
  __device__ uint32_t at(int i) const { return base + 8 * i; }
};

/// A position in the ring of stages.
template <typename T>
struct Cursor {
  int stage = 0, phase = 0;

  __device__ void advance() {
    if (++stage == T::kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/// The producer's message to the consumers about the next tile.
struct alignas(16) Work {
  int bh, tile;  // bh is -1 after the last tile
  int slot;      // place of the part, if the tile is split
  int stages;
  int plain;            // see TileList
  float largest_score;  // bound on the magnitude of the head's scores, in log2 units
  int blocks;           // number of entries before the first entry of means; kNoMeans if there are no means
};
constexpr int kNoMeans = 1 << 30;
static_assert(sizeof(Work) == 32, "Tile leaves 32 bytes for Work");

/// The thread that keeps the stages filled: tile after tile until none is left or, with kParts, for its share of the
/// shared tiles (shares.h). kMeans says that lists may hold means.
template <typename T, bool kParts, bool kMeans>
class Producer {
  static constexpr int D = T::D;

 public:
  __device__ Producer(const Sizes& sizes, const Buffers& buffers, uint8_t* shared)
      : sizes_(sizes),
        buffers_(buffers),
        shared_(shared),
        base_(shared_address(shared)),
        barriers_{base_ + T::kBarriers} {}

  __device__ void run() {
    if constexpr (kParts) {
      produce_share(blockIdx.x);
    } else {
      produce_tiles();
    }
    await_consumers();
    announce({-1, 0, 0, 0, 0, 0, 0});
    ptx::barrier_arrive(barriers_.query_full());
  }

 private:
  __device__ void produce_tiles() {
    int index = blockIdx.x;
    while (index < sizes_.whole_tiles) {
      await_consumers();
      const TileIndex tile(sizes_, tile_at(sizes_, buffers_, index));
      const TileList list = buffers_.tile_lists[tile.list(sizes_)];
      announce({tile.bh, tile.tile, 0, ceil_div(list.length, T::kStageRecords), list.plain, largest_score(tile),
                blocks_from(0, list)});
      load_queries(tile);
      load_keys(tile, list.length, 0, list.length);
      index = static_cast<int>(gridDim.x) + atomicAdd(buffers_.next_tile, 1);  // not earlier: a claimed tile waits
    }
  }

  __device__ void produce_share(int share) {
    for (int mine = sizes_.shares.first_tile(share); mine <= sizes_.shares.last_tile(share); ++mine) {
      const TileIndex tile(sizes_, sizes_.whole_tiles + mine);
      const TileList list = buffers_.tile_lists[tile.list(sizes_)];
      const ListRange part = sizes_.shares.part(share, mine, list.length, T::kStageRecords);
      await_consumers();
      const int stages = max(ceil_div(part.end - part.begin, T::kStageRecords), 1);
      announce({tile.bh, tile.tile, Shares::slot(share, mine), stages, list.plain, largest_score(tile),
                blocks_from(part.begin, list)});
      load_queries(tile);
      load_keys(tile, list.length, part.begin, part.end);
    }
  }

  __device__ static int blocks_from(int begin, const TileList& list) {
    return kMeans && list.means > 0 ? list.length - list.means - begin : kNoMeans;
  }

  /// Waits until the consumers have read the last message.
  __device__ void await_consumers() { ptx::barrier_wait(barriers_.query_empty(), phase_ ^= 1); }

  __device__ float largest_score(const TileIndex& tile) const {
    return buffers_.longest[tile.bh] * buffers_.longest[sizes_.batch_heads + sizes_.group.of(tile.bh)];
  }

  __device__ void announce(const Work& work) const { *reinterpret_cast<Work*>(shared_ + T::kWork) = work; }

  __device__ void load_queries(const TileIndex& tile) {
    const int64_t record = static_cast<int64_t>(tile.bh) * sizes_.query_blocks + tile.tile * T::kWarpgroups;
    const uint32_t full = barriers_.query_full();
    ptx::barrier_arrive_expecting(full, T::kQueryBytes + T::kRows * 4);
    ptx::bulk_copy(base_ + T::kQueries, buffers_.q + record * T::kKeyBytes, T::kQueryBytes, full);
    ptx::bulk_copy(base_ + T::kQueryScales, buffers_.q_scale + record * kRecord, T::kRows * 4, full);
  }

  /// Loads the entries [begin, end) of the tile's list, at least one stage. If they do not fill the last stage, it
  /// loads whatever follows, with a V of zeros.
  __device__ void load_keys(const TileIndex& tile, int length, int begin, int end) {
    const uint32_t* list = buffers_.lists + tile.list(sizes_) * sizes_.list_entries;
    const int64_t head = static_cast<int64_t>(sizes_.group.of(tile.bh)) * sizes_.key_records;
    uint32_t* entries = reinterpret_cast<uint32_t*>(shared_ + T::kEntries);
    uint32_t next[T::kStageRecords];  // fetched one stage ahead
    const auto fetch = [&](int first) {
#pragma unroll
      for (int r = 0; r < T::kStageRecords; ++r) next[r] = list[min(first + r, length - 1)];
    };
    fetch(begin);
    int first = begin;
#pragma unroll 1
    do {
      const int stage = cursor_.stage;
      uint32_t entry[T::kStageRecords];
#pragma unroll
      for (int r = 0; r < T::kStageRecords; ++r) entry[r] = next[r];
      fetch(first + T::kStageRecords);
      int64_t record[T::kStageRecords];
#pragma unroll
      for (int r = 0; r < T::kStageRecords; ++r)
        record[r] = head + (kMeans ? entry_record(entry[r], sizes_.key_blocks) : entry_block(entry[r]));
      ptx::barrier_wait(barriers_.key_empty(stage), cursor_.phase ^ 1);
#pragma unroll
      for (int r = 0; r < T::kStageRecords; ++r) entries[stage * T::kStageRecords + r] = entry[r];
      ptx::barrier_arrive_expecting(barriers_.key_full(stage), T::kStageRecords * (T::kKeyBytes + kKeyGroups * 4));
#pragma unroll
      for (int r = 0; r < T::kStageRecords; ++r) {
        const int slot = stage * T::kStageRecords + r;
        ptx::bulk_copy(base_ + T::kKeyStages + slot * T::kKeyBytes, buffers_.k + record[r] * T::kKeyBytes, T::kKeyBytes,
                       barriers_.key_full(stage));
        ptx::bulk_copy(base_ + T::kKeyScales + slot * kKeyGroups * 4, buffers_.k_scale + record[r] * kKeyGroups,
                       kKeyGroups * 4, barriers_.key_full(stage));
      }
      const int place = (first - begin) % T::kMeans;
      if (place == 0) ptx::barrier_wait(barriers_.means_empty(means_ & 1), means_ / 2 % 2 ^ 1);
      ptx::barrier_wait(barriers_.value_empty(stage), cursor_.phase ^ 1);
      ptx::barrier_arrive_expecting(barriers_.value_full(stage),
                                    T::kStageRecords * (T::kValueBytes + 2 * T::kChannels));
#pragma unroll
      for (int r = 0; r < T::kStageRecords; ++r) load_values(stage, r, first + r < end ? record[r] : -1, place + r);
      first += T::kStageRecords;
      if (place + T::kStageRecords == T::kMeans || first >= end) ++means_;
      cursor_.advance();
    } while (first < end);
  }

  /// Loads a V record (zeros for -1) and its mean, which goes to `place` in the ring of means.
  __device__ void load_values(int stage, int r, int64_t record, int place) {
    constexpr int kRows = T::kChannels * kRecord, kSet = kOnesRows * kRecord;
    const uint8_t* values = record < 0 ? buffers_.v_null : buffers_.v + record * T::kValueRecordBytes;
    const void* mean = record < 0 ? static_cast<const void*>(buffers_.v_null) : buffers_.v_mean + record * D;
    const uint32_t full = barriers_.value_full(stage);
    const uint32_t to = base_ + T::kValueStages + (stage * T::kStageRecords + r) * T::kValueBytes;
    const int set = r % T::kSubtileRecords;
    if (T::kChannels == D && set == 0) {
      ptx::bulk_copy(to, values, T::kValueBytes, full);
    } else {
      ptx::bulk_copy(to, values, kRows, full);
      ptx::bulk_copy(to + kRows, values + D * kRecord + set * kSet, kSet, full);
    }
    ptx::bulk_copy(base_ + T::kMeanRing + means_ % 2 * T::kMeanBytes + place * T::kMeanPitch, mean, 2 * T::kChannels,
                   full);
  }

  const Sizes& sizes_;
  const Buffers& buffers_;
  uint8_t* const shared_;
  const uint32_t base_;
  const Barriers<T> barriers_;
  Cursor<T> cursor_;
  int phase_ = 0;
  int means_ = 0;  // groups of kMeans loaded so far; a second Cursor would take one more register, and spill
};

}  // namespace sparsereel::attention::cuda::hopper
