// The computing half of the Hopper kernel: one warpgroup with 64 query rows.
//
// P.V adds up in the tensor core's accumulator, which truncates products to 13 bits below the sum. The mean over the
// record's 64 keys is subtracted from each V record, so that the truncation errors cancel. Output adds the part of O
// that the subtracted means contribute.
#pragma once

#include "attention/cuda/hopper/output.cuh"
#include "attention/cuda/hopper/softmax.cuh"

namespace sparsereel::attention::cuda::hopper {

/// kParts: tiles are split into parts, which another kernel adds up. kMeans: lists may hold means.
template <typename T, bool kCausal, bool kSkips, bool kParts, bool kMeans>
class Consumer {
  static constexpr int D = T::D, kRecords = T::kSubtileRecords, kSteps = T::kChannels / 32;
  static constexpr int kConsumers = 128 * T::kWarpgroups;

 public:
  __device__ Consumer(const KernelParams& p, const Sizes& sizes, const Buffers& buffers, SharedMemoryPlan<T>& shared)
      : p_(p), sizes_(sizes), shared_(shared), address_(shared), output_(p, sizes, buffers, shared.output) {
    mask_.group = static_cast<int>(threadIdx.x / 128);
    mask_.lane = static_cast<int>(threadIdx.x % 32);
  }

  __device__ __forceinline__ void run() {
    for (int round = 0;; ++round) {
      ptx::barrier_wait(address_.query_full(), round & 1);
      const Work work = shared_.work;
      const TileIndex tile(uniform(work.bh), uniform(work.tile));
      if (tile.bh < 0) break;
      start_tile(tile, work);
      blocks_left_ = uniform(work.blocks);
      run_stages(uniform(work.stages));
      finish_tile(tile, work.slot);
    }
  }

 private:
  __device__ void start_tile(const TileIndex& tile, const Work& work) {
    const int thread = ptx::thread(), row = first_row(thread);
#pragma unroll
    for (int r = 0; r < 2; ++r) softmax_.query_scale[r] = shared_.query_scales[row + 8 * r];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int u = 0; u < 4; ++u)
        query_[k][u] = *reinterpret_cast<const uint32_t*>(
            shared_.queries + row / kRecord * T::kKeyBytes +
            record_offset<D>(row % kRecord + 8 * (u & 1), k * 32 + thread % 4 * 4 + 16 * (u / 2)));
    }
    release(address_.query_empty());
    unmasked_case_ = uniform(case_of(work.largest_score));
    tile_case_ = uniform(work.plain == 0 ? SoftmaxCase::mixed : unmasked_case_);
    case_ = tile_case_;
    softmax_.start();
    output_.start();
    if constexpr (kCausal) mask_.first_hidden = tile.tile * T::kRows + p_.keys - p_.queries + 1;
    if constexpr (kSkips) start_skipping(tile, tile.tile * T::kRows + row);
  }

  __device__ static SoftmaxCase case_of(float largest_score) {
    return largest_score < kPositiveRange ? SoftmaxCase::usual
           : largest_score < kWrapRange   ? SoftmaxCase::far
                                          : SoftmaxCase::masks;
  }

  /// Runs the pipeline. P.V of a subtile runs beside Q.K of the next subtile, and then beside the next softmax. The
  /// warpgroups drift apart by themselves, so that some compute exponentials while others multiply.
  __device__ __forceinline__ void run_stages(int stages) {
    ptx::barrier_wait(address_.key_full(ring_.stage), ring_.phase);
    issue_scores<0>(ring_.stage);
    finish_scores();
    apply_softmax<0>(stages > 1);
#pragma unroll 1
    for (int left = stages;; --left) {
      const int stage = ring_.stage;
      ptx::barrier_wait(address_.value_full(stage), ring_.phase);
      issue_values<0>(stage);
      issue_scores<1>(stage);
      finish_scores();
      release(address_.key_empty(stage));
      note_sums();
      apply_softmax<1>(left > 1);
      ring_.advance();
      if (left == 1) {
        issue_values<1>(stage);
        ptx::matrix_wait();
        output_.hold();
        release(address_.value_empty(stage));
        output_.note_sums(kMeans ? weight_ : 1.0F);
        add_means();
        break;
      }
      issue_values<1>(stage);
      ptx::barrier_wait(address_.key_full(ring_.stage), ring_.phase);
      issue_scores<0>(ring_.stage);
      finish_scores();
      release(address_.value_empty(stage));
      note_sums();
      apply_softmax<0>(left > 2);
    }
  }

  /// Starts Q.K of subtile kSubtile (0 or 1) of the stage.
  template <int kSubtile>
  __device__ void issue_scores(int stage) {
    const int slot = stage * T::kStageRecords + kSubtile * kRecords;
#pragma unroll
    for (int r = 0; r < kRecords; ++r) {
      softmax_.key_scale[r] = shared_.key_scales[(slot + r) * kKeyGroups + mask_.lane % 4];
      mask_.entry[r] = shared_.entries[slot + r];
    }
    const uint64_t keys =
        D == 128 ? ptx::descriptor(address_.keys(slot), 1024, 1) : ptx::descriptor(address_.keys(slot), 512, 2);
    ptx::matrix_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) ptx::multiply(softmax_.score, query_[k], keys + 2 * k, k > 0);
    ptx::matrix_commit();
  }

  template <int kSubtile>
  __device__ void issue_values(int stage) {
    if constexpr (kSkips) agree_to_skip<kSubtile>();
    if (case_ == SoftmaxCase::none) return;
    const int slot = stage * T::kStageRecords + kSubtile * kRecords;
    const uint64_t values = ptx::descriptor(address_.values(slot), 512, 2);
    ptx::matrix_fence();
#pragma unroll
    for (int k = 0; k < T::kKeys / 32; ++k)
      ptx::multiply(output_.value, softmax_.packed[k], values + k / 2 * (T::kValueBytes / 16) + k % 2 * 2, true);
    ptx::matrix_commit();
  }

  __device__ void finish_scores() {
    if (tile_case_ == SoftmaxCase::mixed) {
      case_ = uniform(mask_.softmax_case(unmasked_case_));
    } else if (kSkips) {
      case_ = tile_case_;  // agree_to_skip() may have changed it for the previous subtile
    }
    ptx::matrix_wait();
    softmax_.hold_scores();
    output_.hold();
  }

  __device__ void note_sums() {
    output_.note_sums(kMeans ? weight_ : 1.0F);
    if (output_.means_due()) add_means();
  }

  __device__ void add_means() {
    const int half = output_.add_means();
    release(address_.means_empty(half));
  }

  template <int kSubtile>
  __device__ __forceinline__ void apply_softmax(bool may_skip) {
    const bool has_means = kMeans && blocks_left_ < kRecords;
    blocks_left_ -= kRecords;
    if constexpr (kMeans) {
      const bool first = Output<T>::my_record(mask_.lane) == 0;  // a variable index would move entry[] to memory
      weight_ = has_means && is_mean(first ? mask_.entry[0] : mask_.entry[kRecords - 1]) ? kCell : 1;
    }
    const auto needed = [&](const float(&top)[2]) {
      return !kSkips || __any_sync(~0U, !may_skip || top[0] > skip_below_[0] || top[1] > skip_below_[1]);
    };
    const auto rescale = [&](const float(&alpha)[2]) { output_.scale(alpha); };
    bool live = false;
    if (has_means) {
      if constexpr (kMeans) live = apply_softmax_to_means(rescale);
    } else if (case_ == SoftmaxCase::usual) {
      live = softmax_.template run<SoftmaxCase::usual>(mask_, needed, rescale);
    } else if (case_ == SoftmaxCase::far) {
      live = softmax_.template run<SoftmaxCase::far>(mask_, needed, rescale);
    } else if (case_ == SoftmaxCase::masks) {
      live = softmax_.template run<SoftmaxCase::masks>(mask_, needed, rescale);
    }
    if (kSkips && mask_.lane == 0) skip_votes(kSubtile)[threadIdx.x / 32 % 4] = live ? 1 : 0;
  }

  /// Computes the softmax of a subtile with means, whose P.V is never skipped. Under a causal mask all exponentials use
  /// ex2, so that two variants fewer have to be compiled.
  template <typename Rescale>
  __device__ __forceinline__ bool apply_softmax_to_means(const Rescale& rescale) {
    const auto always = [](const float(&)[2]) { return true; };
    if (case_ == SoftmaxCase::none) return false;
    if (kCausal || case_ == SoftmaxCase::masks)
      return softmax_.template run<SoftmaxCase::masks, true>(mask_, always, rescale);
    if constexpr (!kCausal) {
      if (case_ == SoftmaxCase::far) return softmax_.template run<SoftmaxCase::far, true>(mask_, always, rescale);
      return softmax_.template run<SoftmaxCase::usual, true>(mask_, always, rescale);
    }
  }

  // To skip P.V, a warp whose rows are all below the threshold leaves its P at 0. If all four warps do, the warpgroup
  // does not multiply. The warps vote in shared memory, one byte per warp. The votes of consecutive subtiles use
  // different bytes, because a warp can be one subtile ahead of another.

  __device__ void start_skipping(const TileIndex& tile, int first) {
    const HeadChoice& choice =
        p_.selection.heads == nullptr ? p_.selection.all : p_.selection.heads[tile.bh % p_.heads];
#pragma unroll
    for (int row = 0; row < 2; ++row)
      skip_below_[row] = first + 8 * row < p_.queries ? kOffset - choice.pv_threshold : kUnset;
  }

  __device__ uint8_t* skip_votes(int subtile) const {
    return shared_.skip_votes + (subtile * T::kWarpgroups + mask_.group) * 4;
  }

  template <int kSubtile>
  __device__ void agree_to_skip() {
    ptx::named_wait(kVotes + mask_.group, 128);
    const uint32_t votes = *reinterpret_cast<const volatile uint32_t*>(skip_votes(kSubtile));
    if (__any_sync(~0U, votes != 0) || case_ == SoftmaxCase::none) return;
    case_ = SoftmaxCase::none;
#pragma unroll
    for (int r = 0; r < kRecords; ++r) skipped_ += mask_.cover(r) == Cover::none ? 0 : 1;
  }

  /// Signals that the warp no longer uses the data that the barrier guards.
  __device__ void release(uint32_t barrier) const {
    __syncwarp();
    if (mask_.lane == 0 || T::kArrivals == kConsumers) ptx::barrier_arrive(barrier);
  }

  __device__ void finish_tile(const TileIndex& tile, int slot) {
    output_.restore_row_sums();
    if constexpr (kParts) {
      output_.leave_part(slot, softmax_.shift);
    } else {
      output_.write(tile, softmax_.shift);
    }
    if constexpr (kSkips) {
      const int thread = ptx::thread();
      if (thread % 128 == 0 && tile.tile * T::kRows + first_row(thread) < p_.queries)
        count(p_, kCountSkippedPv, skipped_);
      skipped_ = 0;
    }
  }

  const KernelParams& p_;
  const Sizes& sizes_;
  SharedMemoryPlan<T>& shared_;
  const Addresses<T> address_;
  Cursor<T> ring_;

  uint32_t query_[kSteps][4];
  Mask<T, kCausal> mask_;
  Softmax<T, kCausal> softmax_;
  Output<T> output_;
  SoftmaxCase unmasked_case_;     // case of subtiles without masks; it depends on the tile's largest score
  SoftmaxCase tile_case_, case_;  // case of all subtiles of the tile, or `mixed`; case of the current subtile
  int blocks_left_ = 0;           // number of entries that are not means, from the current subtile on; may be negative
  float weight_ = 1;              // number of tokens for which a key of my_record() stands, in the current subtile
  float skip_below_[2];           // a row needs P.V of a subtile only if a log2 P is above this
  int skipped_ = 0;               // blocks of this tile whose P.V was skipped
};

}  // namespace sparsereel::attention::cuda::hopper
