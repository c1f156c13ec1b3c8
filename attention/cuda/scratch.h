// Sizes of a call, and the places of its buffers in the caller's scratch memory.
#pragma once

#include "attention/cuda/kernel_traits.h"
#include "attention/cuda/shares.h"
#include "attention/length_sum.h"

namespace sparsereel::attention::cuda {

/// Returns the number of selection tiles of a (batch, head). Each has selection.rows video queries, and these share one
/// choice of key blocks.
int selection_tiles(const KernelParams& params);

/// Returns the number of floats that a part of a Hopper query tile (shares.h) takes in memory: for each of 384 threads,
/// its accumulators, which hold O and the sums of P, and the shifts of its two rows.
SPARSEREEL_HOST_DEVICE constexpr int part_floats(int D) {
  return 384 * ((D + kOnesRows) / 2 + 2);
}

/// Maps a head of q, counted over all (batch, head), to the head of k and v that `size` neighboring heads share. It
/// multiplies, because a division would take registers that the kernels do not have. The result is exact while head *
/// size is below 2^32.
struct HeadGroup {
  int size;
  uint32_t inverse;  // 2^32 / size, rounded up; 0 if every head of q has its own head of k and v

  explicit HeadGroup(int heads)
      : size(heads), inverse(heads == 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + heads - 1) / heads)) {}

  SPARSEREEL_HOST_DEVICE constexpr int of(int head) const {
    return inverse == 0 ? head : static_cast<int>((static_cast<uint64_t>(static_cast<uint32_t>(head)) * inverse) >> 32);
  }
};

/// Returns the number of heads that share the budget of a batch entry, including heads that other ranks compute
/// (HeadPart).
SPARSEREEL_HOST_DEVICE inline int all_heads(const KernelParams& p) {
  return p.selection.all_heads > 0 ? p.selection.all_heads : p.heads;
}

struct Sizes {
  Sizes(const KernelParams& params, const KernelTraits& kernel);

  int D;                // padded head_dim
  int batch_heads;      // batch * heads; "bh" below is an index into these
  HeadGroup group;      // heads of q per head of k and v
  int kv_heads;         // heads of k and v
  int batch_kv_heads;   // batch * kv_heads; "bk" below is an index into these: group.of(bh)
  int query_tiles;      // per (batch, head)
  int query_blocks;     // records of 64 queries, in whole tiles
  int key_blocks;       // records of 64 keys
  int mean_records;     // records of 64 means, which follow the key blocks; 0 if nothing replaces dropped blocks
  int key_records;      // key_blocks + mean_records
  int list_entries;     // capacity of a list
  int selection_tiles;  // per (batch, head); video queries only
  int listed_tiles;     // per (batch, head): the first query tiles, whose lists the selection itself writes
  int selectable_keys;  // number of key blocks before the first one with text
  int pooled_blocks;    // key_blocks, rounded up to a multiple of 8
  int budgets;  // number of budgets: one per batch entry, or per (batch, head) if heads have their own choices; 0 if
                // none is needed
  int length_sums;  // number of LengthSums, if heads choose by block_error: one per batch entry, or per (batch, head)
                    // as for budgets; otherwise 0
  int map_words;    // 32-bit words per row of the bitmap
  int value_record_bytes;
  Shares shares;     // how the last query tiles are split into parts; its `tiles` is 0 if they are not
  int whole_tiles;   // number of tiles over all (batch, head) that are not split; the split ones come after them
  int sorted_tiles;  // how many of the last whole tiles run in the order of their lists' lengths
  int stat_chunks;   // number of partial sums of the statistics
  int stat_stride;   // the statistics read every stat_stride-th key
  int query_stride;  // the statistics read every query_stride-th query
};

/// Facts about a tile's list that a kernel must know before it reads the list.
struct TileList {
  int length;  // number of entries, at least 1
  int plain;   // 1 if every entry is Cover::whole for every group that has queries
  int means;   // number of entries of means, which are last
};

/// Two statistics of a block's values, for ranking by error: the length of the vector of their standard deviations
/// within cells, and the distance of their mean from V's mean.
struct ValueSpread {
  float deviation, far;
};

/// The statistics that are computed for each channel.
enum Statistic { kKeySum, kKeySquares, kValueSum, kLeastValue, kLargestValue, kQuerySquares, kStatistics };

constexpr int kLengthClasses = 16;

constexpr int kBins = 2048;
constexpr uint32_t kWholeBin = ~0U;

/// The bin in which the budget ends, and how many of the bin's candidates are kept (kWholeBin for all).
struct BinPlace {
  int bin;
  uint32_t rest;
};

/// The number of candidates to keep over all tiles, and histograms of the logarithms of their errors
/// (select/budget.cuh). A candidate is a key block that a selection tile may keep or drop.
struct Budget {
  uint32_t bins[kBins];
  uint32_t wanted;
  uint32_t unused;           // padding, because ranks add up pairs of counts as 64-bit numbers
  uint32_t sub_bins[kBins];  // a finer histogram of the candidates in the bin at `place`, where the budget ends
  BinPlace place;
};
static_assert(sizeof(Budget) % sizeof(uint64_t) == 0);

/// Pointers into the scratch memory. [bh] means batch * heads, [bk] batch * kv_heads. A pointer is null if the call
/// does not need the buffer.
struct Buffers {
  HeadChoice* choices;   // [heads]; only if heads differ
  uint32_t* rotary;      // fp16 cosine and sine [rotary_tokens][head_dim / 2]; only if the call has tables
  uint8_t* q;            // [bh][query_blocks] Q records
  uint8_t* k;            // [bk][key_records] K records
  uint8_t* v;            // [bk][key_records] V records
  uint8_t* v_null;       // one V record of zeros
  float* q_scale;        // [bh][query_blocks * 64], multiplied by scale * log2(e)
  float* k_scale;        // [bk][key_records][4]
  float* longest;        // [bh] bounds on query lengths, times scale * log2(e); then [bk] bounds on key lengths
  float* v_scale;        // [bk][D]
  float* v_center;       // [bk][D]; center subtracted from V
  uint8_t* v_outliers;   // [bk][key_blocks]; 1 if a record has values far beyond the sample; Hopper only
  int* v_saturated;      // [bk]; 1 if v_scale is too small for a value
  uint16_t* v_mean;      // fp16 [bk][key_records][D]: means subtracted from records, in units of v_scale; Hopper only
  float* q_balance;      // [bk][D]; factors of the channels of Q
  float* k_balance;      // [bk][D]; factors of the channels of K, 1 / q_balance
  float* key_mean;       // [bk][D]; mean subtracted from K, times k_balance
  float* q_dot_mean;     // [bh][queries], q . key_mean * scale; only with lse
  float* partials;       // [bh][stat_chunks][kStatistics][D]; statistics of k and v are at the first [bk]
  float* token_moments;  // [2][batch][tokens][2]: mean and 1 / deviation across heads; only with such a norm
  uint16_t* q_mean;      // bf16 [bh][query_blocks][4][D]: means of 16 queries; only if blocks are predicted
  float* q_direction;    // [bh][query_blocks][D]: sums of the normalized queries; only with similarity
  uint16_t* k_mean;      // bf16 [bk][pooled_blocks][D] in the order of pooled_offset(); only if blocks are predicted
  // bf16, laid out as k_mean: for each block, the variances within its cells, averaged. This buffer and the next exist
  // only if blocks are ranked by error.
  uint16_t* k_variance;
  ValueSpread* v_spread;   // [bk][key_blocks]
  uint16_t* v_block_mean;  // fp16 [bk][key_blocks][D]: block means minus v_center, in units of v_scale; only for output
                           // lengths
  float* output_lengths;   // [bh][selection_tiles]; only if errors are predicted
  float* k_similarity;     // [bk][key_blocks]; only with similarity
  float* scores;    // [bh][selection_tiles, rounded up to a multiple of 16][selectable_keys]; only if blocks are ranked
                    // by error, or if scores of 16 tiles exceed shared memory
  Budget* budgets;  // [Sizes::budgets], zeros before the selection; null if there are none
  LengthSum* length_sums;  // [Sizes::length_sums], zeros before the selection; null if there are none
  uint32_t* bitmap;        // [bh][selection_tiles][map_words], not for listed_tiles; only if blocks are predicted
  uint32_t* lists;       // [bh][query_tiles][list_entries]: entries of blocks in ascending order, then entries of means
  TileList* tile_lists;  // [bh][query_tiles]
  int* next_tile;        // counter from which the CTAs of the persistent kernel take their next tile
  int* class_counts;     // [kLengthClasses], number of sorted tiles in each class
  int* tile_order;       // [kLengthClasses][sorted_tiles], indices (TileIndex) of the tiles in each class
  float* parts;          // [shares.slots()], parts of split tiles; only if tiles are split
  // The rest is only for kernels that read rows.
  uint16_t* q_rows;       // [bh][queries][head_dim] after the prologue, in the call's type; only with a prologue
  uint16_t* k_rows;       // [bk][keys][head_dim] after the prologue, in the call's type; only with a prologue
  uint16_t* mean_keys;    // [bk][mean_records][64][D], means of K's cells in the order of records of means
  uint16_t* mean_values;  // [bk][mean_records][64][D], means of V's cells in the same order
};

/// Returns the size of a call's buffers together.
size_t buffer_bytes(const KernelParams& params, const Sizes& sizes, const KernelTraits& kernel);

/// Returns a call's buffers in the scratch memory, which has buffer_bytes() and is aligned to 1024 bytes.
Buffers buffers_in(void* scratch, const KernelParams& params, const Sizes& sizes, const KernelTraits& kernel);

}  // namespace sparsereel::attention::cuda
