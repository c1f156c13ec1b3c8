// Turns the scores of a subtile into P in e4m3, for the two rows of a thread.
//
// A thread holds rows lane / 4 and lane / 4 + 8 of the 16 rows of its warp. Element i of its scores belongs to the
// first of these rows if i / 2 is even, else to the second, and to key i / 4 * 8 + lane % 4 * 2 + i % 2 of the subtile.
// All keys of a record that a thread holds share one int8 scale.
//
// Scores stay integers until the exponential. The reference maximum of a row may be up to kLag log2 units below its
// true maximum. P is scaled so that it does not overflow e4m3 even then. Most steps therefore need neither shuffles nor
// a rescaling of O.
#pragma once

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/hopper/tile.cuh"

namespace sparsereel::attention::cuda::hopper {

constexpr float kLag = 4;
constexpr float kTop = kE4m3MaxLog2;    // log2 of the largest P
constexpr float kOffset = kTop - kLag;  // log2 of P at the reference maximum
constexpr float kNever = -1e30F;        // lower than the score of any key
constexpr float kUnset = 1e30F;         // shift of a row before its first key
constexpr int kMagicBits = 0x4B400000;  // 1.5 * 2^23: adding an integer below 2^22 to the bits adds it to the float
constexpr float kMagic = 12582912.0F;
constexpr float kExponentUnit = 8388608.0F;  // 2^23, one log2 unit in the bits of a float

/// The float whose bits are (x + 127) * 2^23 is about 2^x: its mantissa is linear in x. Computing it takes one
/// multiply-add, while ex2 has a quarter of the rate that the rest of the kernel needs. With this bias the error is -4%
/// to +2%, less than the rounding error of e4m3. The error of attention stays within 1.05 times the error of
/// SageAttention 2 (tests/parity/sage_error.py).
constexpr uint32_t kLinearBias = static_cast<uint32_t>(126.94 * kExponentUnit);

/// If all scores are within kPositiveRange log2 units of 0, the bits of these floats stay positive: the exponent of P
/// stays at least half a unit above that of the smallest float. Within kWrapRange the bits may be negative, which must
/// then become 0, but they do not wrap around.
constexpr float kPositiveRange = 65;
constexpr float kWrapRange = 190;

/// The special cases that the softmax of a subtile must handle for a group of 64 rows.
enum class SoftmaxCase : int {
  none,   // the group does not use the subtile
  masks,  // records that the group does not use, keys hidden by a causal mask, or scores beyond kWrapRange
  far,    // no masks, but scores beyond kPositiveRange
  usual,
  mixed,  // only for a whole tile: its subtiles have different cases
};

/// Returns x, which must be the same in all lanes. Only a reduction or a vote proves that to the compiler. Without this
/// proof, it keeps descriptors in vector registers and guards every matrix instruction inside a branch.
template <typename T>
__device__ T uniform(T x) {
  return static_cast<T>(__reduce_max_sync(~0U, static_cast<int>(x)));
}

/// Returns the first of a thread's two rows of the tile; the other is 8 further.
__device__ inline int first_row(int thread) {
  return thread / 32 * 16 + thread % 32 / 4;
}

/// The keys of the subtile that the group's rows attend to.
template <typename T, bool kCausal>
struct Mask {
  static constexpr int kRecords = T::kSubtileRecords;

  int group, lane;
  int first_hidden = 0;  // causal: first key that the tile's first row does not see
  uint32_t entry[kRecords];

  __device__ Cover cover(int r) const { return entry_cover(entry[r], group); }
  __device__ bool is_mean(int r) const { return cuda::is_mean(entry[r]); }

  /// Returns a word with all bits set if the thread's four keys of chunk `chunk` of record r count, because they are
  /// means of a dropped block or keys of a used block; otherwise 0.
  __device__ uint32_t counts(int r, int chunk) const {
    const uint32_t bits = is_mean(r) ? entry[r] << (7 - 4 * (chunk % 2) - lane % 4) : ~0U;
    return ptx::sign_of_byte(bits, chunk / 2);
  }

  /// Returns true if the causal mask hides element i.
  __device__ bool hides(int i) const {
    if (!kCausal || cover(i * 2 / kRecord) != Cover::causal) return false;
    const int key = entry_block(entry[i * 2 / kRecord]) * kRecord + i / 4 * 8 % kRecord + lane % 4 * 2 + i % 2;
    return key >= first_hidden + first_row(ptx::thread()) + 8 * (i / 2 % 2);
  }

  /// Returns the case of the subtile: `unmasked` if the group uses all keys.
  __device__ SoftmaxCase softmax_case(SoftmaxCase unmasked) const {
    bool whole = true, covered = false;
#pragma unroll
    for (int r = 0; r < kRecords; ++r) {
      whole &= cover(r) == Cover::whole;
      covered |= cover(r) != Cover::none;
    }
    return whole ? unmasked : covered ? SoftmaxCase::masks : SoftmaxCase::none;
  }
};

template <typename T, bool kCausal>
class Softmax {
  static constexpr int kScores = T::kKeys / 2, kRecords = T::kSubtileRecords;

 public:
  int score[kScores];
  uint32_t packed[kScores / 16][4];  // P, as the A operand of P.V
  float query_scale[2];
  float key_scale[kRecords];
  float shift[2];  // kOffset - reference maximum, in log2 units

  __device__ void start() { shift[0] = shift[1] = kUnset; }

  __device__ void hold_scores() {
#pragma unroll
    for (int i = 0; i < kScores; ++i) ptx::hold(score[i]);
  }

  /// Turns scores into P. needed(top) returns true if P.V of the subtile must be computed, given the largest log2 P of
  /// the thread's rows. If that holds for no thread of the warp, sets P to 0 and returns false. Calls rescale(alpha)
  /// when reference maxima rise.
  template <SoftmaxCase kCase, bool kMeans = false, typename Needed, typename Rescale>
  __device__ __forceinline__ bool run(const Mask<T, kCausal>& mask, const Needed& needed, const Rescale& rescale) {
    constexpr bool kMasked = kCase == SoftmaxCase::masks;
    if (kMasked && kCausal) hide(mask);
    if (kMeans && kCausal) hide_means(mask);
    Line line;
    prepare<kMasked>(mask, line);
    float top[2];
    find_top(line, top);
    if (!needed(top)) {
      clear();
      return false;
    }
    if (__any_sync(~0U, fmaxf(top[0], top[1]) > kTop)) raise<kMasked>(mask, line, rescale);
    exponentiate<kCase, kMeans>(mask, line);
    return true;
  }

 private:
  /// The line log2 P = score * scale + shift, where score is an integer as a float.
  struct Line {
    float scale[2][kRecords], shift[2][kRecords];
  };

  __device__ static constexpr int record_of(int i) {
    return i * 2 / kRecord;
  }
  __device__ static constexpr int row_of(int i) {
    return i / 2 % 2;
  }

  /// Returns the integer x plus 1.5 * 2^23 as a float, without the slow conversion.
  __device__ static float as_float(int x) {
    return __int_as_float(x + kMagicBits);
  }

  /// Gives hidden keys the lowest score that a sum of D int8 products can have.
  __device__ void hide(const Mask<T, kCausal>& mask) {
#pragma unroll
    for (int i = 0; i < kScores; ++i)
      if (mask.hides(i)) score[i] = -127 * 127 * T::D;
  }

  /// Gives the lowest score to means of blocks that are not dropped; their P becomes 0 in exponentiate(). Such a block
  /// may hold keys that the causal mask hides. Their mean could have a higher score than every visible key, and would
  /// raise the reference maximum too far.
  __device__ void hide_means(const Mask<T, kCausal>& mask) {
#pragma unroll
    for (int i = 0; i < kScores; ++i)
      if (mask.counts(record_of(i), i % (kRecord / 2) / 8) == 0) score[i] = -127 * 127 * T::D;
  }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) packed[i / 4][i % 4] = 0;
    hold_packed();
  }

  __device__ void hold_packed() {
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) ptx::hold(packed[i / 4][i % 4]);
  }

  __device__ void find_largest(int (&largest)[2][kRecords]) const {
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      const int r = record_of(i);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int a = score[i + 2 * row], b = score[i + 2 * row + 1];
        largest[row][r] = i % (kRecord / 2) == 0 ? max(a, b) : __vimax3_s32(largest[row][r], a, b);
      }
    }
  }

  template <bool kMasked>
  __device__ void prepare(const Mask<T, kCausal>& mask, Line& line) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int r = 0; r < kRecords; ++r) {
        const bool used = !kMasked || mask.cover(r) != Cover::none;
        line.scale[row][r] = used ? query_scale[row] * key_scale[r] : 0.0F;
        line.shift[row][r] = used ? fmaf(-kMagic, line.scale[row][r], shift[row]) : kNever;
      }
    }
  }

  /// Computes the largest log2 P of each row among this thread's keys.
  __device__ void find_top(const Line& line, float (&top)[2]) const {
    int largest[2][kRecords];
    find_largest(largest);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int r = 0; r < kRecords; ++r) {
        const float highest = fmaf(as_float(largest[row][r]), line.scale[row][r], line.shift[row][r]);
        top[row] = r == 0 ? highest : fmaxf(top[row], highest);
      }
    }
  }

  /// Sets new reference maxima for rows in which some thread saw a higher score.
  template <bool kMasked, typename Rescale>
  __device__ void raise(const Mask<T, kCausal>& mask, Line& line, const Rescale& rescale) {
    int largest[2][kRecords];
    find_largest(largest);
    float alpha[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float highest = kNever;
#pragma unroll
      for (int r = 0; r < kRecords; ++r)
        if (!kMasked || mask.cover(r) != Cover::none)
          highest = fmaxf(highest, (as_float(largest[row][r]) - kMagic) * line.scale[row][r]);
      highest = fmaxf(highest, __shfl_xor_sync(~0U, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(~0U, highest, 2));
      const float lower = fminf(shift[row], kOffset - highest);
      alpha[row] = fast_exp2(lower - shift[row]);
      shift[row] = lower;
      bits_shift_[row] = static_cast<uint32_t>(__float2int_rn(lower * kExponentUnit)) + kLinearBias;
#pragma unroll
      for (int r = 0; r < kRecords; ++r)
        if (!kMasked || mask.cover(r) != Cover::none) line.shift[row][r] = fmaf(-kMagic, line.scale[row][r], lower);
    }
    rescale(alpha);
  }

  template <SoftmaxCase kCase, bool kMeans>
  __device__ void exponentiate(const Mask<T, kCausal>& mask, const Line& line) {
    uint32_t bits_scale[2][kRecords];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int r = 0; r < kRecords; ++r)
        bits_scale[row][r] = __float_as_int(fmaf(line.scale[row][r], kExponentUnit, kMagic)) - kMagicBits;
    }
    const auto exponential = [&](int i) {
      const int row = row_of(i), r = record_of(i);
      if (kCase == SoftmaxCase::masks) {
        const float x = fmaf(as_float(score[i]), line.scale[row][r], line.shift[row][r]);
        score[i] = __float_as_int(fast_exp2(mask.hides(i) ? kNever : x));
      } else {
        score[i] = static_cast<int>(static_cast<uint32_t>(score[i]) * bits_scale[row][r] + bits_shift_[row]);
        if (kCase == SoftmaxCase::far) score[i] = max(score[i], 0);
      }
    };
    const auto pack = [&](int chunk) {
      const auto p = [&](int i) { return __int_as_float(score[chunk * 8 + i]); };
      packed[chunk / 2][chunk % 2 * 2] = pack_e4m3(p(0), p(1), p(4), p(5));
      packed[chunk / 2][chunk % 2 * 2 + 1] = pack_e4m3(p(2), p(3), p(6), p(7));
      if constexpr (kMeans) {
        const uint32_t counts = mask.counts(chunk / 4, chunk % 4);
        packed[chunk / 2][chunk % 2 * 2] &= counts;
        packed[chunk / 2][chunk % 2 * 2 + 1] &= counts;
      }
    };
    constexpr int kChunks = kScores / 8;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < 8; ++i) exponential(chunk * 8 + i);
      if (chunk > 0) pack(chunk - 1);
    }
    pack(kChunks - 1);
    hold_packed();
  }

  /// Shift for the linear exponentials. It may wrap around 2^32: its sum with a scaled score is in the valid range
  /// again.
  uint32_t bits_shift_[2];
};

}  // namespace sparsereel::attention::cuda::hopper
