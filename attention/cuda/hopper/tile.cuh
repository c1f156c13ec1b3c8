// Shape of the Hopper kernel's work, the layout of its shared memory, and the thread that fills it.
#pragma once

#include <cstddef>

#include "attention/cuda/hopper/cursor.cuh"
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
  static constexpr int kSlots = kStages * kStageRecords;
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
  static constexpr int kRowBytes = 256;  // memory of Output per row
};

/// The barriers of the pipeline. The producer's copies complete a "full" barrier, and every consumer warp arrives at an
/// "empty" one.
template <typename T>
struct Barriers {
  uint64_t key_full[T::kStages], key_empty[T::kStages], value_full[T::kStages], value_empty[T::kStages];
  uint64_t query_full, query_empty;
  uint64_t means_empty[2];  // one for each half of the ring of means
};

/// The producer's message to the consumers about the next tile.
struct alignas(16) Work {
  int bh, tile;  // bh is -1 after the last tile
  int slot;      // index of the part's memory (Shares::slot()), if the tile is split
  int stages;
  int plain;            // see TileList::plain
  float largest_score;  // bound on the magnitude of the head's scores, in log2 units
  int blocks;           // number of entries before the first entry of means; kNoMeans if there are no means
};
constexpr int kNoMeans = 1 << 30;

/// The memory of Output.
template <typename T>
struct OutputMemory {
  uint8_t rows[T::kRows * T::kRowBytes];
  uint8_t means[2 * T::kMeanBytes];  // a ring for the means of 2 * kMeans blocks, in two halves
};

/// The shared memory of a CTA. Arrays are flat, because indices into arrays of arrays take more instructions.
template <typename T>
struct alignas(1024) SharedMemoryPlan {
  uint8_t queries[T::kQueryBytes];
  uint8_t keys[T::kSlots * T::kKeyBytes];
  uint8_t values[T::kSlots * T::kValueBytes];
  OutputMemory<T> output;
  alignas(16) float key_scales[T::kSlots * kKeyGroups];
  alignas(16) uint32_t entries[T::kSlots];
  alignas(16) float query_scales[T::kRows];
  Barriers<T> barriers;
  Work work;
  uint8_t skip_votes[2 * T::kWarpgroups * 4];  // [2][kWarpgroups][warps]
};

/// Returns the size of the plan.
template <typename T>
constexpr int shared_bytes() {
  using Plan = SharedMemoryPlan<T>;
  constexpr int kKeyRows = 8 * T::D, kValueRows = 8 * kRecord;  // bytes after which an operand's swizzle repeats
  static_assert(offsetof(Plan, keys) % kKeyRows == 0 && T::kKeyBytes % kKeyRows == 0);
  static_assert(offsetof(Plan, values) % kValueRows == 0 && T::kValueBytes % kValueRows == 0);
  static_assert(offsetof(Plan, key_scales) % 16 == 0 && offsetof(Plan, query_scales) % 16 == 0, "for bulk copies");
  static_assert(sizeof(Plan) <= 232448, "a tile exceeds the shared memory of an SM");
  return sizeof(Plan);
}

/// The addresses of parts of the plan. They are computed in 32 bits from two base addresses, because pointers to the
/// parts would take more instructions.
template <typename T>
class Addresses {
  using Plan = SharedMemoryPlan<T>;
  using Its = Barriers<T>;

 public:
  explicit __device__ Addresses(const Plan& plan)
      : base_(shared_address(&plan)), barriers_(at(offsetof(Plan, barriers))) {}

  __device__ uint32_t queries() const { return at(offsetof(Plan, queries)); }
  __device__ uint32_t keys(int slot) const { return at(offsetof(Plan, keys)) + slot * T::kKeyBytes; }
  __device__ uint32_t values(int slot) const { return at(offsetof(Plan, values)) + slot * T::kValueBytes; }
  __device__ uint32_t key_scales(int slot) const { return at(offsetof(Plan, key_scales)) + slot * kKeyGroups * 4; }
  __device__ uint32_t query_scales() const { return at(offsetof(Plan, query_scales)); }
  __device__ uint32_t means(int half) const { return at(offsetof(Plan, output.means)) + half * T::kMeanBytes; }

  __device__ uint32_t key_full(int stage) const { return barrier(offsetof(Its, key_full), stage); }
  __device__ uint32_t key_empty(int stage) const { return barrier(offsetof(Its, key_empty), stage); }
  __device__ uint32_t value_full(int stage) const { return barrier(offsetof(Its, value_full), stage); }
  __device__ uint32_t value_empty(int stage) const { return barrier(offsetof(Its, value_empty), stage); }
  __device__ uint32_t query_full() const { return barrier(offsetof(Its, query_full)); }
  __device__ uint32_t query_empty() const { return barrier(offsetof(Its, query_empty)); }
  __device__ uint32_t means_empty(int half) const { return barrier(offsetof(Its, means_empty), half); }

  __device__ void init_barriers() const {
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
  __device__ uint32_t at(size_t offset) const { return base_ + static_cast<uint32_t>(offset); }
  __device__ uint32_t barrier(size_t offset, int i = 0) const {
    return barriers_ + 8 * (static_cast<int>(offset / 8) + i);
  }

  const uint32_t base_, barriers_;
};

/// The thread that keeps the stages filled. Without kParts, it takes tile after tile until none is left. With kParts,
/// it loads its CTA's share of the split tiles (shares.h). kMeans is true if lists may hold means.
template <typename T, bool kParts, bool kMeans>
class Producer {
  static constexpr int D = T::D;

 public:
  __device__ Producer(const Sizes& sizes, const Buffers& buffers, SharedMemoryPlan<T>& shared)
      : sizes_(sizes), buffers_(buffers), shared_(shared), address_(shared) {}

  __device__ void run() {
    if constexpr (kParts) {
      produce_share(blockIdx.x);
    } else {
      produce_tiles();
    }
    await_consumers();
    announce({-1, 0, 0, 0, 0, 0, 0});
    ptx::barrier_arrive(address_.query_full());
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
      // Takes the next tile only now, so that a tile does not wait for this CTA while another CTA is idle.
      index = static_cast<int>(gridDim.x) + atomicAdd(buffers_.next_tile, 1);
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
  __device__ void await_consumers() { ptx::barrier_wait(address_.query_empty(), phase_ ^= 1); }

  __device__ float largest_score(const TileIndex& tile) const {
    return buffers_.longest[tile.bh] * buffers_.longest[sizes_.batch_heads + sizes_.group.of(tile.bh)];
  }

  __device__ void announce(const Work& work) const { shared_.work = work; }

  __device__ void load_queries(const TileIndex& tile) {
    const int64_t record = static_cast<int64_t>(tile.bh) * sizes_.query_blocks + tile.tile * T::kWarpgroups;
    const uint32_t full = address_.query_full();
    ptx::barrier_arrive_expecting(full, sizeof(shared_.queries) + sizeof(shared_.query_scales));
    ptx::bulk_copy(address_.queries(), buffers_.q + record * T::kKeyBytes, sizeof(shared_.queries), full);
    ptx::bulk_copy(address_.query_scales(), buffers_.q_scale + record * kRecord, sizeof(shared_.query_scales), full);
  }

  /// Loads the entries [begin, end) of the tile's list, at least one stage. If these entries do not fill the last
  /// stage, its rest gets the keys of other entries, and a V of zeros.
  __device__ void load_keys(const TileIndex& tile, int length, int begin, int end) {
    const uint32_t* list = buffers_.lists + tile.list(sizes_) * sizes_.list_entries;
    const int64_t head = static_cast<int64_t>(sizes_.group.of(tile.bh)) * sizes_.key_records;
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
      ptx::barrier_wait(address_.key_empty(stage), cursor_.phase ^ 1);
#pragma unroll
      for (int r = 0; r < T::kStageRecords; ++r) shared_.entries[stage * T::kStageRecords + r] = entry[r];
      ptx::barrier_arrive_expecting(address_.key_full(stage), T::kStageRecords * (T::kKeyBytes + kKeyGroups * 4));
#pragma unroll
      for (int r = 0; r < T::kStageRecords; ++r) {
        const int slot = stage * T::kStageRecords + r;
        ptx::bulk_copy(address_.keys(slot), buffers_.k + record[r] * T::kKeyBytes, T::kKeyBytes,
                       address_.key_full(stage));
        ptx::bulk_copy(address_.key_scales(slot), buffers_.k_scale + record[r] * kKeyGroups, kKeyGroups * 4,
                       address_.key_full(stage));
      }
      const int place = (first - begin) % T::kMeans;
      if (place == 0) ptx::barrier_wait(address_.means_empty(means_ & 1), means_ / 2 % 2 ^ 1);
      ptx::barrier_wait(address_.value_empty(stage), cursor_.phase ^ 1);
      ptx::barrier_arrive_expecting(address_.value_full(stage), T::kStageRecords * (T::kValueBytes + 2 * T::kChannels));
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
    const uint32_t full = address_.value_full(stage);
    const uint32_t to = address_.values(stage * T::kStageRecords + r);
    const int set = r % T::kSubtileRecords;
    if (T::kChannels == D && set == 0) {
      ptx::bulk_copy(to, values, T::kValueBytes, full);
    } else {
      ptx::bulk_copy(to, values, kRows, full);
      ptx::bulk_copy(to + kRows, values + D * kRecord + set * kSet, kSet, full);
    }
    ptx::bulk_copy(address_.means(means_ % 2) + place * T::kMeanPitch, mean, 2 * T::kChannels, full);
  }

  const Sizes& sizes_;
  const Buffers& buffers_;
  SharedMemoryPlan<T>& shared_;
  const Addresses<T> address_;
  Cursor<T> cursor_;
  int phase_ = 0;
  int means_ = 0;  // groups of kMeans means loaded so far; a second Cursor would take another register and spill
};

}  // namespace sparsereel::attention::cuda::hopper
