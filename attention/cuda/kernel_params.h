// The input of the CUDA attention kernels: raw pointers, strides and scalars. No torch, no CUDA header.
#pragma once

#include <cstdint>

#include "attention/call_types.h"

struct CUstream_st;

namespace sparsereel::attention::cuda {

using Stream = CUstream_st*;

using attention::Element;  // never fp32 in attention/cuda

/// The rows of q, k or v, aligned to 16 bytes; token_stride is from 0 to 2^31 - 1.
using View = StridedRows;

/// The prologue as kernels read it: they apply it to q and k in fp32 as they load them. Weights, biases and rows of
/// rotary_positions are aligned to 16 bytes. attention() makes rotary_pairs if only tables exist. Tokens behind
/// rotary_tokens use the text's weights.
using Prologue = PrologueOf<const float*, const void*, float>;

/// The block choice of one head, with the fields of attention::HeadPolicy.
struct HeadChoice {
  enum class Kind : int { topk, cdf, error, block_error, dense };
  double topk = 1;  // not float, so that 0.7 of 10 blocks are 7
  Kind kind = Kind::dense;
  float cdf = 1;
  float similarity = -1;
  float pv_threshold = 32;
  float error = 0;  // HeadPolicy::error or block_error, depending on the kind
};

/// The blocks that a call computes: every block, predicted blocks, or the blocks of a caller's map.
struct Selection {
  enum class Kind { dense, predict, map };
  Kind kind = Kind::dense;
  int rows = 128;                     // queries that share one selection: 64, 128 or 192
  bool similarity = false;            // true if any head has a similarity threshold of 0 or more
  bool skips_pv = false;              // true if any head has a pv_threshold below 32
  bool means = false;                 // true if means of 16 tokens replace dropped blocks
  bool any_topk = false;              // true if any head chooses by topk
  bool any_block_error = false;       // true if any head chooses by block_error, which needs by_error
  bool by_error = false;              // rank blocks by the error of their means instead of by mass; needs means
  bool predicts_error = false;        // predict and count the error of the means; required by a choice of kind error
  HeadChoice all{};                   // choice of every head if heads is null
  const HeadChoice* heads = nullptr;  // host [heads], copied; if set, each head has its own budget or mean length
                                      // instead of its batch entry's
  const uint8_t* map = nullptr;  // device [batch, heads, ceil(queries / map_rows), ceil(keys / 64)] of bytes; 0 drops
  int map_rows = 64;             // 64 or 128
  int first_head = 0, all_heads = 0;  // the call has the heads from first_head on, of all_heads that share a batch
                                      // entry's budget or mean length; 0 of 0 for all
};

/// Counts of a call, in blocks of 64 x 64: kept blocks, kept blocks without P.V, and the cost of the means of dropped
/// blocks. The fourth is the predicted error of all selection tiles in units of 2^-kErrorBits.
enum Count { kCountKept, kCountSkippedPv, kCountMeans, kCountPredictedError, kCounts };
constexpr int kErrorBits = 24;

constexpr int kMeanCell = 16;                 // tokens that share a mean
constexpr int kMostMeanKeys = 512 * 64 * 16;  // largest number of keys of a call with means

/// Computes softmax(q k^T scale + key_bias) v. head_dim is 16 to 256, a multiple of 8; with a prologue, of 16. The
/// element is never fp32. Rows of an e4m3 out are aligned to 8 bytes; only kernels with KernelTraits::writes_e4m3 and
/// attend_few_keys() take an out_scale.
struct KernelParams : CallSizes<int>, CallTensors, CallScores<int, float> {
  const float* key_bias = nullptr;  // device [batch, keys], for attend_few_keys() only; zeros if null
  Prologue prologue{};
  Selection selection{};
  uint64_t* counts = nullptr;  // device [kCounts]: counters that the call adds to; null if not wanted
};

/// The tokens of q or of k. Rows are aligned to 16 bytes.
struct TokenRows {
  int batch = 0, tokens = 0, heads = 0, head_dim = 0;
  Element element = Element::bf16;
  View in{};
};
inline TokenRows queries_of(const KernelParams& p) {
  return {p.batch, p.queries, p.heads, p.head_dim, p.element, p.q};
}
inline TokenRows keys_of(const KernelParams& p) {
  return {p.batch, p.keys, p.heads_of_keys(), p.head_dim, p.element, p.k};
}

/// The prologue of these tokens: normalization, then rotary embedding. head_dim is 16 to 256, a multiple of 16.
struct PrologueRows : TokenRows {
  View out{};
  Prologue prologue{};  // only its fields that q and k have in common are read
  /// Arrays aligned to 16 bytes. Without weights these are 1, without biases 0. Tokens behind prologue.rotary_tokens
  /// use text_weight, if it exists.
  RowNormOf<const float*> norm{};
  float* moments = nullptr;  // scratch of [batch, tokens, 2] for a norm across heads without norm.moments
};

/// Tokens whose norm needs the mean and deviation over all heads.
struct MomentRows : TokenRows {
  bool centers = false;  // subtracts the mean, as layer norm does and RMS norm does not
  float eps = 0;
  float* out = nullptr;  // [batch][tokens][2]: mean or 0, and 1 / deviation
};

}  // namespace sparsereel::attention::cuda
