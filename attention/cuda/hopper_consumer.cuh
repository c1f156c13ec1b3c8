// The computing half of the Hopper kernel: one warpgroup, 64 query rows.
//
// A thread holds two rows (lane / 4 and + 8 of its warp's 16). Element i of its scores belongs to row (i / 2) % 2 and
// to key i / 4 * 8 + lane % 4 * 2 + i % 2 of the subtile; all its keys of a record share one int8 scale.
//
// Scores stay integers until the exponential. A row's reference maximum may lag its true maximum by kLag log2 units: P
// is scaled so that it cannot overflow e4m3 even so, and the usual step then needs neither shuffles nor a rescaling of
// O. P.V adds up in the tensor core's own accumulator, which truncates low bits, so O moves to fp32 sums in shared
// memory every kPromoteEvery subtiles; the rows of ones (records.h) sum P the same way, so that both lose alike.
#pragma once

#include "attention/cuda/hopper_output.cuh"

namespace sparsereel::attention::cuda::hopper {

constexpr float kLag = 3;
constexpr float kTop = kE4m3MaxLog2;    // log2 of the largest P
constexpr float kOffset = kTop - kLag;  // log2 of P at the reference maximum
constexpr float kNever = -1e30F;        // a score that no key has
constexpr float kUnset = 1e30F;         // a row's shift before its first key
constexpr int kMagicBits = 0x4B400000;  // 1.5 * 2^23: an integer below 2^22 added to the bits is added to the float
constexpr float kMagic = 12582912.0F;
constexpr float kExponentUnit = 8388608.0F;  // 2^23: one log2 unit in the bits of a float
// The integer exponential is right for log2 P from about -380 up: below, its bits wrap around.
constexpr float kIntegerRange = 370;
// Adding this to log2 x in the exponent's place gives x to within 6%, centred: the mantissa is taken as linear.
constexpr float kExponentBias = 126.94F;

/// Five of eight exponentials are computed in the integer pipe, which the others leave idle: as many as keep the error
/// of P within that of SageAttention 2.
__host__ __device__ constexpr bool in_integers(int i) {
  return i / 4 % 8 % 3 != 2 && i / 4 % 8 != 7;
}

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

/// Rounds to e4m3; a in the lowest byte.
__device__ inline uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  uint32_t packed;
  asm("mov.b32 %0, {%1, %2};" : "=r"(packed) : "h"(low), "h"(high));
  return packed;
}

template <typename T, bool kCausal, bool kSkips>
class Consumer {
  static constexpr int D = T::D, kScores = T::kKeys / 2, kRecords = T::kSubtileRecords;
  static constexpr int kConsumers = 128 * T::kWarpgroups;

 public:
  __device__ Consumer(const Problem& p, const Sizes& sizes, const Buffers& buffers, uint8_t* shared)
      : p_(p),
        sizes_(sizes),
        shared_(shared),
        base_(ptx::shared_address(shared)),
        barriers_{base_ + T::kBarriers},
        group_(static_cast<int>(threadIdx.x) / 128),
        lane_(static_cast<int>(threadIdx.x) % 32),
        row_(static_cast<int>(threadIdx.x) / 32 * 16 + lane_ / 4),
        output_(p, buffers, shared) {}

  __device__ void run() {
    if (group_ == T::kWarpgroups - 1) pass_turn();
    for (int round = 0;; ++round) {
      ptx::barrier_wait(barriers_.query_full(), round & 1);
      const Work work = *reinterpret_cast<const Work*>(shared_ + T::kWork);
      if (work.index < 0) break;
      start_tile(TileIndex(sizes_, work.index), work);
      run_stages(work.stages);
      finish_tile(TileIndex(sizes_, work.index));
    }
  }

 private:
  /// Warpgroups take turns in issuing matrix multiplications, so that one computes exponentials while others multiply.
  __device__ void wait_turn() const { ptx::named_wait(1 + group_, 256); }
  __device__ void pass_turn() const { ptx::named_arrive(1 + (group_ + 1) % T::kWarpgroups, 256); }

  __device__ void start_tile(const TileIndex& tile, const Work& work) {
    const float* scales = reinterpret_cast<const float*>(shared_ + T::kQueryScales);
#pragma unroll
    for (int r = 0; r < 2; ++r) query_scale_[r] = scales[row_ + 8 * r];
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
#pragma unroll
      for (int u = 0; u < 4; ++u)
        query_[k][u] = *reinterpret_cast<const uint32_t*>(
            shared_ + T::kQueries + row_ / kRecord * T::kKeyBytes +
            record_offset<D>(row_ % kRecord + 8 * (u & 1), k * 32 + lane_ % 4 * 4 + 16 * (u / 2)));
    }
    release(barriers_.query_empty());
    bound_scores(work.largest_key);
    plain_ = __all_sync(~0U, work.plain != 0);  // all lanes agree, but only a vote tells the compiler
    covered_ = whole_ = true;
    output_.start(tile);
    shift_[0] = shift_[1] = kUnset;
    until_promotion_ = T::kPromoteEvery;
    if constexpr (kCausal) first_hidden_ = tile.tile * T::kRows + row_ + p_.keys - p_.queries + 1;
    if constexpr (kSkips) {
      const HeadChoice& choice =
          p_.selection.heads == nullptr ? p_.selection.all : p_.selection.heads[tile.bh % p_.heads];
      const int first = tile.tile * T::kRows + row_;
#pragma unroll
      for (int row = 0; row < 2; ++row)
        skip_below_[row] = first + 8 * row < p_.queries ? kOffset - choice.pv_threshold : kUnset;
    }
    live_ = true;
  }

  /// No score of a row exceeds sum|q| max|k| in magnitude.
  __device__ void bound_scores(float largest_key) {
    int sum[2] = {};
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const auto x = static_cast<int>(query_[k][u]);
        const int negative = x >> 7 & 0x01010101;  // bytes of 1 or -1: 1, or 1 + 0xFE
        sum[u & 1] = __dp4a(x, negative * 0xFE + 0x01010101, sum[u & 1]);
      }
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      sum[row] += __shfl_xor_sync(~0U, sum[row], 1);
      sum[row] += __shfl_xor_sync(~0U, sum[row], 2);
      bound_[row] = static_cast<float>(sum[row]) * query_scale_[row] * largest_key;
    }
    in_range_ = __all_sync(~0U, fmaxf(bound_[0], bound_[1]) < kIntegerRange / 2);
  }

  /// PV of a subtile runs beside QK of the next one, then the next one's softmax.
  __device__ void run_stages(int stages) {
    ptx::barrier_wait(barriers_.key_full(keys_.stage), keys_.phase);
    issue_scores(Constant<0>());
    if (!plain_) classify();
    ptx::matrix_wait();
    hold_scores();
    soften(stages > 1);
#pragma unroll 1
    for (int stage = 1;; ++stage) {
      step(Constant<1>(), stage < stages);
      if (stage == stages) break;
      step(Constant<0>(), stage + 1 < stages);
    }
    if (live_) issue_values(Constant<1>());
    ptx::matrix_wait();
    output_.hold();
    release_values();
  }

  /// subtile: of the stage (0 or 1) whose scores are computed; the values are those of the subtile before it.
  template <int kSubtile>
  __device__ void step(Constant<kSubtile> subtile, bool may_skip) {
    if (kSubtile == 1) ptx::barrier_wait(barriers_.value_full(values_.stage), values_.phase);
    wait_turn();
    if (live_) issue_values(Constant<1 - kSubtile>());
    if (kSubtile == 0) ptx::barrier_wait(barriers_.key_full(keys_.stage), keys_.phase);
    issue_scores(subtile);
    pass_turn();
    if (!plain_) classify();
    ptx::matrix_wait();
    hold_scores();
    output_.hold();
    if (kSubtile == 0) release_values();
    if (kSubtile == 1) release_keys();
    if (--until_promotion_ == 0) {
      until_promotion_ = T::kPromoteEvery;
      output_.promote(shift_);
    }
    soften(may_skip);
  }

  template <int kSubtile>
  __device__ void issue_scores(Constant<kSubtile>) {
    const int slot = keys_.stage * T::kStageRecords + kSubtile * kRecords;
#pragma unroll
    for (int r = 0; r < kRecords; ++r) {
      key_scale_[r] = reinterpret_cast<const float*>(shared_ + T::kKeyScales)[(slot + r) * kKeyGroups + lane_ % 4];
      entry_[r] = reinterpret_cast<const uint32_t*>(shared_ + T::kEntries)[slot + r];
    }
    const uint64_t keys = D == 128 ? ptx::descriptor(base_ + T::kKeyStages + slot * T::kKeyBytes, 1024, 1)
                                   : ptx::descriptor(base_ + T::kKeyStages + slot * T::kKeyBytes, 512, 2);
    ptx::matrix_fence();
#pragma unroll
    for (int k = 0; k < D / 32; ++k) ptx::multiply(score_, query_[k], keys + 2 * k, k > 0);
    ptx::matrix_commit();
  }

  template <int kSubtile>
  __device__ void issue_values(Constant<kSubtile>) {
    const int slot = values_.stage * T::kStageRecords + kSubtile * kRecords;
    const uint64_t values = ptx::descriptor(base_ + T::kValueStages + slot * T::kValueBytes, 512, 2);
    ptx::matrix_fence();
#pragma unroll
    for (int k = 0; k < T::kKeys / 32; ++k)
      ptx::multiply(output_.value, p_packed_[k], values + k / 2 * (T::kValueBytes / 16) + k % 2 * 2,
                    k > 0 || !output_.fresh);
    ptx::matrix_commit();
    output_.fresh = false;
  }

  __device__ void hold_scores() {
#pragma unroll
    for (int i = 0; i < kScores; ++i) ptx::hold(score_[i]);
  }

  /// The warp is done with what the barrier guards.
  __device__ void release(uint32_t barrier) const {
    __syncwarp();
    if (lane_ == 0 || T::kArrivals == kConsumers) ptx::barrier_arrive(barrier);
  }
  __device__ void release_keys() {
    release(barriers_.key_empty(keys_.stage));
    keys_.advance();
  }
  __device__ void release_values() {
    release(barriers_.value_empty(values_.stage));
    values_.advance();
  }

  __device__ static constexpr int record_of(int i) {
    return i * 2 / kRecord;
  }
  __device__ static constexpr int row_of(int i) {
    return i / 2 % 2;
  }

  /// Key, from the start of its record, of element i.
  __device__ int key_of(int i) const {
    return i / 4 * 8 % kRecord + lane_ % 4 * 2 + i % 2;
  }

  __device__ bool hidden(int i) const {
    const uint32_t entry = entry_[record_of(i)];
    return entry_cover(entry, group_) == Cover::causal &&
           entry_block(entry) * kRecord + key_of(i) >= first_hidden_ + 8 * row_of(i);
  }

  /// Which softmax the subtile needs; called while the matrix multiplication runs.
  __device__ void classify() {
    bool whole = true, covered = false;
#pragma unroll
    for (int r = 0; r < kRecords; ++r) {
      whole &= cover(r) == Cover::whole;
      covered |= cover(r) != Cover::none;
    }
    covered_ = __any_sync(~0U, covered);
    whole_ = __all_sync(~0U, whole);
  }

  /// Scores -> P as e4m3, with O rescaled where a row's maximum rose by more than kLag.
  __device__ void soften(bool may_skip) {
    live_ = covered_;
    if (whole_ && in_range_) {
      soften_covered<false>(may_skip);
    } else if (covered_) {
      soften_covered<true>(may_skip);
    }
  }

  __device__ Cover cover(int r) const {
    return entry_cover(entry_[r], group_);
  }

  /// kChecked: records that the group does not use, keys that a causal mask hides, and scores of any size.
  template <bool kChecked>
  __device__ void soften_covered(bool may_skip) {
    if (kChecked && kCausal) hide_scores();
    float scale[2][kRecords], shift[2][kRecords], top[2];
    prepare<kChecked>(scale, shift);
    find_top(scale, shift, top);
    const bool rises = __any_sync(~0U, fmaxf(top[0], top[1]) > kTop);
    if constexpr (kSkips) {
      const bool counts = !may_skip || top[0] > skip_below_[0] || top[1] > skip_below_[1];
      live_ = __any_sync(~0U, ptx::named_any(1 + T::kWarpgroups + group_, 128, counts));
      if (!live_) return count_skipped();
      prepare<kChecked>(scale, shift);  // again: cheaper than the registers that would keep them across the barrier
    }
    if (rises) raise<kChecked>(scale, shift);
    exponentiate<kChecked>(scale, shift);
  }

  __device__ void count_skipped() {
#pragma unroll
    for (int r = 0; r < kRecords; ++r) skipped_ += cover(r) == Cover::none ? 0 : 1;
  }

  /// No dot product of D products of int8 is lower than what a hidden key gets.
  __device__ void hide_scores() {
#pragma unroll
    for (int i = 0; i < kScores; ++i)
      if (hidden(i)) score_[i] = -127 * 127 * D;
  }

  __device__ void find_largest(int (&largest)[2][kRecords]) const {
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      const int r = record_of(i);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int a = score_[i + 2 * row], b = score_[i + 2 * row + 1];
        largest[row][r] = i % (kRecord / 2) == 0 ? max(a, b) : __vimax3_s32(largest[row][r], a, b);
      }
    }
  }

  /// log2 P = integer-as-float * scale + shift.
  template <bool kChecked>
  __device__ void prepare(float (&scale)[2][kRecords], float (&shift)[2][kRecords]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int r = 0; r < kRecords; ++r) {
        const bool used = !kChecked || cover(r) != Cover::none;
        scale[row][r] = used ? query_scale_[row] * key_scale_[r] : 0.0F;
        shift[row][r] = used ? fmaf(-kMagic, scale[row][r], shift_[row]) : kNever;
      }
    }
  }

  /// The largest log2 P of each row among this thread's keys.
  __device__ void find_top(const float (&scale)[2][kRecords], const float (&shift)[2][kRecords],
                           float (&top)[2]) const {
    int largest[2][kRecords];
    find_largest(largest);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int r = 0; r < kRecords; ++r) {
        const float highest = fmaf(as_float(largest[row][r]), scale[row][r], shift[row][r]);
        top[row] = r == 0 ? highest : fmaxf(top[row], highest);
      }
    }
  }

  /// An integer as 1.5 * 2^23 more, without the slow conversion.
  __device__ static float as_float(int x) {
    return __int_as_float(x + kMagicBits);
  }

  /// New reference maxima, for the rows of which some thread saw a higher score.
  template <bool kChecked>
  __device__ void raise(const float (&scale)[2][kRecords], float (&shift)[2][kRecords]) {
    int largest[2][kRecords];
    find_largest(largest);
    float alpha[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float highest = kNever;
#pragma unroll
      for (int r = 0; r < kRecords; ++r)
        if (!kChecked || cover(r) != Cover::none)
          highest = fmaxf(highest, (as_float(largest[row][r]) - kMagic) * scale[row][r]);
      highest = fmaxf(highest, __shfl_xor_sync(~0U, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(~0U, highest, 2));
      const float lower = fminf(shift_[row], kOffset - highest);
      alpha[row] = exp2_approx(lower - shift_[row]);
      shift_[row] = lower;
      // Beyond the range of int the low bits are right all the same, and they are what counts.
      bits_shift_[row] = static_cast<int>(__float2ll_rn((lower + kExponentBias) * kExponentUnit));
#pragma unroll
      for (int r = 0; r < kRecords; ++r)
        if (!kChecked || cover(r) != Cover::none) shift[row][r] = fmaf(-kMagic, scale[row][r], lower);
    }
    in_range_ = __all_sync(~0U, shift_[0] > bound_[0] - kIntegerRange && shift_[1] > bound_[1] - kIntegerRange);
    output_.scale(alpha);
  }

  /// kChecked: some keys may be hidden, and scores of any size, which the integer exponential would not stand.
  template <bool kChecked>
  __device__ void exponentiate(const float (&scale)[2][kRecords], const float (&shift)[2][kRecords]) {
    int bits_scale[2][kRecords];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int r = 0; r < kRecords; ++r) bits_scale[row][r] = __float2int_rn(scale[row][r] * kExponentUnit);
    }
    const auto linear = [&](int i) {
      const int row = row_of(i), r = record_of(i);
      score_[i] = in_integers(i) && !kChecked ? score_[i] * bits_scale[row][r] + bits_shift_[row]
                                              : __float_as_int(fmaf(as_float(score_[i]), scale[row][r], shift[row][r]));
    };
    const auto exponential = [&](int i) {
      score_[i] =
          in_integers(i) && !kChecked ? max(score_[i], 0) : __float_as_int(exp2_approx(__int_as_float(score_[i])));
      if (kChecked && kCausal && hidden(i)) score_[i] = 0;
    };
    const auto pack = [&](int chunk) {
      const auto p = [&](int i) { return __int_as_float(score_[chunk * 8 + i]); };
      p_packed_[chunk / 2][chunk % 2 * 2] = pack_e4m3(p(0), p(1), p(4), p(5));
      p_packed_[chunk / 2][chunk % 2 * 2 + 1] = pack_e4m3(p(2), p(3), p(6), p(7));
    };
    const auto each = [](int chunk, const auto& f) {
#pragma unroll
      for (int i = 0; i < 8; ++i) f(chunk * 8 + i);
    };
    constexpr int kChunks = kScores / 8;  // software-pipelined: multiply-add, exponential and packing of three chunks
    each(0, linear);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      each(chunk, exponential);
      if (chunk + 1 < kChunks) each(chunk + 1, linear);
      if (chunk > 0) pack(chunk - 1);
    }
    pack(kChunks - 1);
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) ptx::hold(p_packed_[i / 4][i % 4]);
  }

  __device__ void finish_tile(const TileIndex& tile) {
    output_.finish(tile, shift_);
    if constexpr (kSkips) {
      if (threadIdx.x % 128 == 0 && skipped_ > 0 && p_.counts != nullptr && tile.tile * T::kRows + row_ < p_.queries)
        atomicAdd(reinterpret_cast<unsigned long long*>(p_.counts + 1), static_cast<unsigned long long>(skipped_));
      skipped_ = 0;
    }
  }

  const Problem& p_;
  const Sizes& sizes_;
  uint8_t* const shared_;
  const uint32_t base_;
  const Barriers<T> barriers_;
  const int group_, lane_;
  const int row_;  // of the tile; this thread's other row is 8 further
  Cursor<T> keys_, values_;

  uint32_t query_[D / 32][4];
  float query_scale_[2];
  int score_[kScores];
  float key_scale_[kRecords];
  uint32_t entry_[kRecords];
  uint32_t p_packed_[kScores / 16][4];
  Output<T> output_;
  float shift_[2];     // kOffset - reference maximum, log2 units
  int bits_shift_[2];  // the same for the integer exponential
  float bound_[2];     // no score is larger, log2 units
  bool in_range_;      // so the integer exponential cannot wrap around
  bool plain_;         // no record of the tile needs a mask
  bool covered_;       // some record of the subtile is for this group
  bool whole_;         // all are, as a whole
  bool live_;          // the packed P is to be multiplied
  int until_promotion_;
  int first_hidden_ = 0;  // causal: the first key that row_ does not see
  float skip_below_[2];   // log2 P below which a row does not need a block
  int skipped_ = 0;       // blocks of this tile
};

}  // namespace sparsereel::attention::cuda::hopper
