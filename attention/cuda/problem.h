// What a call of the CUDA attention kernels is given: raw pointers, strides and scalars. No torch, no CUDA header.
#pragma once

#include <cstdint>

#include "attention/call_types.h"

struct CUstream_st;

namespace sparsereel::attention::cuda {

using Stream = CUstream_st*;

using attention::Element;  // never fp32 here

/// Rows of q, k and v start on 16 bytes; token_stride is from 0 to 2^31 - 1.
using View = StridedRows;

/// Applied to q and k in fp32 as they are read. Weights and biases start on 16 bytes, rows of rotary_positions too.
/// attention() makes rotary_pairs where only tables exist. Tokens behind rotary_tokens have the text's weights.
using Prologue = PrologueOf<const float*, const void*, float>;

/// How one head chooses its blocks; the fields are those of attention::HeadPolicy.
struct HeadChoice {
  enum class Kind : int { topk, cdf, error, block_error, dense };
  double topk = 1;  // not float: 0.7 of 10 blocks are 7
  Kind kind = Kind::dense;
  float cdf = 1;
  float similarity = -1;
  float pv_threshold = 32;
  float error = 0;  // HeadPolicy::error or block_error, as the kind says
};

/// Which blocks a call computes: every block, predicted ones, or a caller's map.
struct Selection {
  enum class Kind { dense, predict, map };
  Kind kind = Kind::dense;
  int rows = 128;                     // queries that share one selection: 64, 128 or 192
  bool similarity = false;            // whether any head has a similarity threshold of 0 or more
  bool skips_pv = false;              // whether any head has a pv_threshold below 32
  bool means = false;                 // whether the means of 16 tokens stand for dropped blocks
  bool any_topk = false;              // whether any head chooses by topk
  bool any_block_error = false;       // or by block_error, which needs by_error
  bool by_error = false;              // rank blocks by the error of their means, not by mass; needs means
  bool predicts_error = false;        // predict and count what the means err by; a choice of kind error needs it
  HeadChoice all{};                   // the choice of every head, where heads is null
  const HeadChoice* heads = nullptr;  // host [heads], copied; with it a budget, or a mean length, is a head's and
                                      // not a batch entry's
  const uint8_t* map = nullptr;  // device bytes, 0: drop, [batch, heads, ceil(queries / map_rows), ceil(keys / 64)]
  int map_rows = 64;             // or 128
  int first_head = 0, all_heads = 0;  // of whom a batch entry's budget or mean length is: the call's heads are some of
                                      // so many; 0 of 0: they are all
};

/// What is counted of a call: blocks of 64 x 64 that are kept, those of them whose P.V is skipped, what the means of
/// dropped blocks cost, and the predicted error of all selection tiles in units of 2^-kErrorBits.
enum Count { kCountKept, kCountSkippedPv, kCountMeans, kCountPredictedError, kCounts };
constexpr int kErrorBits = 24;

constexpr int kMeanCell = 16;                 // tokens that share a mean
constexpr int kMostMeanKeys = 512 * 64 * 16;  // with means

/// softmax(q k^T scale + key_bias) v.
struct Problem {
  int batch = 0;
  int heads = 0;  // of q
  int group = 1;  // heads of q, neighbours, that share one of k and v; heads is a multiple
  int queries = 0;
  int keys = 0;
  int head_dim = 0;  // 16 to 256, a multiple of 8; with a prologue of 16
  Element element = Element::bf16;
  View q{}, k{}, v{}, out{};
  // device [batch]: out is e4m3, rows on 8 bytes, and these are the scales that the call divides it by; of
  // Kernel::hopper and attend_few_keys(). Null: out is Elements.
  float* out_scale = nullptr;
  float* lse = nullptr;  // [batch, heads, queries], natural log; null: not wanted
  float scale = 1;
  const float* key_bias = nullptr;       // device [batch, keys], in attend_few_keys() alone; null: zeros
  int text_tokens = 0;                   // the last tokens of q and k
  bool causal = false;                   // query i sees keys up to i + keys - queries
  const int64_t* key_lengths = nullptr;  // device [batch]; null: every key counts
  Prologue prologue{};
  Selection selection{};
  uint64_t* counts = nullptr;  // device [kCounts], added to; null: not wanted
};

/// Which attention kernel runs, over the same lists. All but the last read the same int8 records; P.V is fp16 on
/// ampere, else e4m3.
enum class Kernel {
  hopper,   // wgmma and bulk copies: compute capability 9.0, head_dim up to 128
  ada,      // mma.sync with e4m3: compute capability 8.9 and newer
  ampere,   // mma.sync with fp16: compute capability 8.0 and newer
  sixteen,  // nothing in 8 bits: mma.sync with the call's own type, compute capability 8.0 and newer
};

/// The prologue of q, or of k, alone: normalisation, then rotary embedding.
struct PrologueRows {
  int batch = 0;
  int tokens = 0;
  int heads = 0;
  int head_dim = 0;  // 16 to 256, a multiple of 16
  Element element = Element::bf16;
  View in{}, out{};               // rows start on 16 bytes
  Prologue prologue{};            // its weights and biases are not read
  const float* weight = nullptr;  // [head_dim], across heads [heads * head_dim], on 16 bytes as the bias; null: ones
  const float* bias = nullptr;
  const float* text_weight = nullptr;  // [head_dim], on 16 bytes, of tokens behind prologue.rotary_tokens; null: weight
  float* moments = nullptr;            // scratch of [batch, tokens, 2], where the norm goes across heads
  bool has_moments = false;            // whether they are there already
};

/// Tokens of q or of k, of whose heads together a norm needs the mean and deviation.
struct MomentRows {
  View view{};
  Element element = Element::bf16;
  int batch = 0, tokens = 0, heads = 0, head_dim = 0;
  bool centres = false;  // about the mean, as layer norm; RMS norm does not
  float eps = 0;
  float* out = nullptr;  // [batch][tokens][2]: mean, or 0, and 1 / deviation
};

}  // namespace sparsereel::attention::cuda
