// Sizes of one call and where its buffers lie in the caller's scratch memory.
#pragma once

#include "attention/cuda/kernel_params.h"
#include "attention/cuda/records.h"
#include "attention/cuda/shares.h"
#include "attention/length_sum.h"

namespace sparsereel::attention::cuda {

/// Tiles of a (batch, head): each has selection.rows video queries.
int selection_tiles(const KernelParams& params);

/// Query rows that share a list of key blocks.
constexpr int tile_rows(Kernel kernel) {
  return kernel == Kernel::hopper || kernel == Kernel::sixteen ? 192 : 128;
}

/// Pooled scores of 16 selection tiles fit into shared memory up to this many key blocks. GPUs of compute
/// capability 8.6 and 8.9 grant a CTA 99 KB, Hopper 227.
constexpr int max_shared_scores(Kernel kernel) {
  return kernel == Kernel::hopper ? 3072 : 1400;
}

/// Floats of a part of a query tile of the Hopper kernel: O and P's sums of 384 threads, then their two rows' shifts.
SPARSEREEL_HOST_DEVICE constexpr int part_floats(int D) {
  return 384 * ((D + kOnesRows) / 2 + 2);
}

/// The head of k and v, of all (batch, head), that `size` neighbors of q share. A division costs registers where the
/// kernels have none left; this product is exact while head * size stays below 2^32.
struct HeadGroup {
  int size;
  uint32_t inverse;  // 2^32 / size, rounded up; 0: each has its own

  explicit HeadGroup(int heads)
      : size(heads), inverse(heads == 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + heads - 1) / heads)) {}

  SPARSEREEL_HOST_DEVICE constexpr int of(int head) const {
    return inverse == 0 ? head : static_cast<int>((static_cast<uint64_t>(static_cast<uint32_t>(head)) * inverse) >> 32);
  }
};

/// Among which a batch entry's budget is: of all parts where the call has only some.
SPARSEREEL_HOST_DEVICE inline int all_heads(const KernelParams& p) {
  return p.selection.all_heads > 0 ? p.selection.all_heads : p.heads;
}

struct Sizes {
  Sizes(const KernelParams& params, Kernel kernel);

  int D;                // padded head_dim
  int batch_heads;      // batch * heads; "bh" below counts them
  HeadGroup group;      // heads of q that share one of k and v
  int kv_heads;         // heads of k and v, and
  int batch_kv_heads;   // batch * kv_heads; "bk" below counts them: group.of(bh)
  int query_tiles;      // of a (batch, head)
  int query_blocks;     // records of 64 queries, whole tiles
  int key_blocks;       // records of 64 keys
  int mean_records;     // records of 64 means, which follow them; 0 unless means stand for dropped blocks
  int key_records;      // both together
  int list_entries;     // room of a list
  int selection_tiles;  // of a (batch, head); video queries only
  int listed_tiles;     // leading query tiles of a (batch, head) whose lists the selection writes itself
  int selectable_keys;  // leading key blocks that hold no text
  int pooled_blocks;    // key_blocks, to 8s
  int budgets;          // of blocks, one a batch entry or, where heads have choices of their own, one a (batch, head)
  int length_sums;      // likewise, where heads choose by a bound on a block's error
  int map_words;        // 32-bit words of a row of the bitmap
  int value_record_bytes;
  Shares shares;     // of the query tiles at the end that are computed in parts, if any
  int whole_tiles;   // of all (batch, head); the shared ones follow
  int sorted_tiles;  // of whole_tiles, those at the end that are taken in the order of their lists' lengths
  int stat_chunks;   // partial sums of the statistics
  int stat_stride;   // every how many keys the statistics look at one
  int query_stride;  // and every how many queries
};

/// What a kernel knows of a tile's list before it reads it.
struct TileList {
  int length;  // entries, at least 1
  int plain;   // 1: every group that has queries uses every entry as a whole
  int means;   // of the entries, the last ones
};

/// What ranking by error asks of the values of a block: the length of their deviation within cells and how far their
/// mean is from V's.
struct ValueSpread {
  float deviation, far;
};

/// What the statistics find out about each channel.
enum Statistic { kKeySum, kKeySquares, kValueSum, kLeastValue, kLargestValue, kQuerySquares, kStatistics };

constexpr int kLengthClasses = 16;

constexpr int kBins = 2048;
constexpr uint32_t kWholeBin = ~0U;

/// A bin of a budget's candidates, and how many of those in it are kept.
struct BinPlace {
  int bin;
  uint32_t rest;
};

/// How many candidates, that is key blocks of selection tiles, may be kept of all together, and how many there are in
/// each bin of their errors' logarithms (select/budget.cuh).
struct Budget {
  uint32_t bins[kBins];
  uint32_t wanted;
  uint32_t unused;           // pairs of counts are summed up over parts of the heads as one number of 64 bits each
  uint32_t sub_bins[kBins];  // of the bin at `place`, where the kept ones end
  BinPlace place;
};
static_assert(sizeof(Budget) % sizeof(uint64_t) == 0);

/// Pointers into the scratch memory. [bh] means batch * heads, [bk] batch * kv_heads.
struct Buffers {
  Buffers(const KernelParams& params, const Sizes& sizes, Kernel kernel, void* scratch);

  HeadChoice* choices;   // [heads]; null unless heads differ
  uint32_t* rotary;      // fp16 cosine and sine [rotary_tokens][head_dim / 2]; null unless they come as tables
  uint8_t* q;            // [bh][query_blocks] Q records
  uint8_t* k;            // [bk][key_records] K records
  uint8_t* v;            // [bk][key_records] V records
  uint8_t* v_null;       // one V record of zeros
  float* q_scale;        // [bh][query_blocks * 64], times scale * log2(e)
  float* k_scale;        // [bk][key_records][4]
  float* longest;        // [bh]: no query of the records is longer (times scale * log2(e)); then [bk]: and no key
  float* v_scale;        // [bk][D]
  float* v_center;       // [bk][D]; what V was reduced by
  uint8_t* v_outliers;   // [bk][key_blocks]; whether a record has values far beyond the sample: Hopper only
  int* v_saturated;      // [bk]; whether v_scale is too small for a value
  uint16_t* v_mean;      // fp16 [bk][key_records][D]: means taken off besides, units of v_scale; null but on Hopper
  float* q_balance;      // [bk][D]; what the channels of Q are multiplied with, and
  float* k_balance;      // [bk][D] those of K: 1 / q_balance
  float* key_mean;       // [bk][D]; what K was reduced by, times k_balance
  float* q_dot_mean;     // [bh][queries], q . key_mean * scale; null without lse
  float* partials;       // [bh][stat_chunks][kStatistics][D]; those of k and v at the first [bk]
  float* token_moments;  // [2][batch][tokens][2]: mean and 1 / deviation across heads; null without such a norm
  uint16_t* q_mean;      // bf16 [bh][query_blocks][4][D]: means of 16 real queries; null unless blocks are predicted
  float* q_direction;    // [bh][query_blocks][D]: sums of the normalized queries; null without similarity
  uint16_t* k_mean;  // bf16 [bk][pooled_blocks][D], each head's in the order of pooled_offset(); null unless blocks are
                     // predicted
  // Likewise: variances within the cells of a block, their mean; null unless blocks are ranked by error, like the next.
  uint16_t* k_variance;
  ValueSpread* v_spread;   // [bk][key_blocks]
  uint16_t* v_block_mean;  // fp16 [bk][key_blocks][D], less v_center, units of v_scale; null unless outputs' lengths
                           // are wanted
  float* output_lengths;   // [bh][selection_tiles]; null unless errors are predicted
  float* k_similarity;     // [bk][key_blocks]; null without similarity
  float* scores;           // [bh][selection_tiles, to 16s][selectable_keys] where blocks are ranked by error, or those
                           // of 16 tiles exceed shared memory; else null
  Budget* budgets;         // [Sizes::budgets], zeros before the selection; null without, like the next
  LengthSum* length_sums;  // [Sizes::length_sums], likewise
  uint32_t* bitmap;        // [bh][selection_tiles][map_words]; null unless blocks are predicted;
                           // rows of listed_tiles are not written
  uint32_t* lists;         // [bh][query_tiles][list_entries] entries: blocks, ascending, then those of means
  TileList* tile_lists;    // [bh][query_tiles]
  int* next_tile;          // the persistent kernel's counter
  int* class_counts;       // [kLengthClasses] of the sorted tiles, and
  int* tile_order;         // [kLengthClasses][sorted_tiles] what is in each class: TileIndex's numbers
  float* parts;            // [shares.slots()] parts of shared tiles; null without such tiles
  // Of Kernel::sixteen alone, which reads rows, and 8-bit records only for the choice of blocks:
  uint16_t* q_rows;       // [bh][queries][head_dim] behind the prologue, in the call's type; null without one
  uint16_t* k_rows;       // [bk][keys][head_dim] likewise
  uint16_t* mean_keys;    // [bk][mean_records][64][D] means of K's cells, in the order of records of means; and
  uint16_t* mean_values;  // those of V's
  size_t bytes;           // of all together
};

}  // namespace sparsereel::attention::cuda
