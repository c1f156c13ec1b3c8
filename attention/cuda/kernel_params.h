// The input of the CUDA attention kernels: raw pointers, strides and scalars. No torch, no CUDA header.
#pragma once

#include <cstdint>

#include "attention/call_types.h"

struct CUstream_st;

namespace sparsereel::attention::cuda {

using Stream = CUstream_st*;

using attention::Element;  // never fp32 in attention/cuda

/// The rows of q, k or v. Each row is aligned to 16 bytes, and token_stride is from 0 to 2^31 - 1.
using View = StridedRows;

/// The prologue as kernels read it. They apply it to q and k in fp32 when they load them. Weights, biases and rows of
/// rotary_positions are aligned to 16 bytes. If the call has only tables, attention() computes rotary_pairs from them.
/// Tokens after the first rotary_tokens use the norm weights of text tokens.
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
  int rows = 128;           // queries that share one selection: 64, 128 or 192
  bool similarity = false;  // true if any head has a similarity threshold of 0 or more, so that similarities are needed
  bool skips_pv = false;    // true if any head has a pv_threshold below 32
  bool means = false;       // true if means of 16 tokens replace dropped blocks
  bool any_topk = false;    // true if any head chooses by topk
  bool any_block_error = false;  // true if any head chooses by block_error; requires by_error
  bool by_error = false;         // rank blocks by the error of their means instead of by mass; needs means
  bool predicts_error = false;   // predict and count the error of the means; required if a head has the kind `error`
  HeadChoice all{};              // choice of every head if `heads` is null
  const HeadChoice* heads = nullptr;  // host [heads], copied by attention(). If set, each head has its own budget or
                                      // mean length; otherwise the heads of a batch entry share one
  const uint8_t* map = nullptr;  // device [batch, heads, ceil(queries / map_rows), ceil(keys / 64)]; 0 drops a block
  int map_rows = 64;             // 64 or 128
  /// If other ranks compute other heads: the call has the heads from first_head on, out of the all_heads heads that
  /// share a batch entry's budget or mean length. Both are 0 if the call has all heads.
  int first_head = 0, all_heads = 0;
};

/// The counts of a call: computed blocks, computed blocks whose P.V was skipped, and the cost of the means of dropped
/// blocks, all in blocks of 64 x 64. The fourth count is the sum of the predicted errors of all selection tiles in
/// units of 2^-kErrorBits.
enum Count { kCountKept, kCountSkippedPv, kCountMeans, kCountPredictedError, kCounts };
constexpr int kErrorBits = 24;

constexpr int kMeanCell = 16;                 // tokens that share a mean
constexpr int kMostMeanKeys = 512 * 64 * 16;  // largest number of keys of a call with means

/// Parameters of softmax(q k^T scale + key_bias) v. head_dim is 16 to 256 and a multiple of 8, or of 16 if there is a
/// prologue. `element` is never fp32. out_scale may be set for kernels with KernelTraits::writes_e4m3 and for
/// attend_few_keys(); the rows of `out` are then e4m3 and aligned to 8 bytes.
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

/// The prologue (normalization, then rotary embedding) of the tokens of q or of k. head_dim is 16 to 256 and a multiple
/// of 16.
struct PrologueRows : TokenRows {
  View out{};
  Prologue prologue{};  // only the fields that apply to both q and k are read; for the others see `norm`
  /// The norm's arrays for these tokens, aligned to 16 bytes. Absent weights count as 1 and absent biases as 0. Tokens
  /// after the first prologue.rotary_tokens use text_weight, if it exists.
  RowNormOf<const float*> norm{};
  /// Scratch memory [batch, tokens, 2]; needed for a norm across heads if norm.moments is absent.
  float* moments = nullptr;
};

/// Tokens whose mean and deviation over all heads are to be computed.
struct MomentRows : TokenRows {
  bool centers = false;  // subtracts the mean, as layer norm does and RMS norm does not
  float eps = 0;
  float* out = nullptr;  // [batch][tokens][2]: mean or 0, and 1 / deviation
};

}  // namespace sparsereel::attention::cuda
