// One call of attention by pointers: what torch's operator and the library's C interface both make of what they are
// asked, and all that the kernels are run by. No torch, no CUDA header.
#pragma once

#include <cstdint>
#include <string>

#include "attention/call_policy.h"
#include "attention/call_types.h"
#include "attention/cpu/problem.h"
#include "attention/head_part.h"

namespace sparsereel::attention {

/// out = softmax(q k^T scale) v over the blocks that are kept. Pointers are to memory of one device.
struct Call {
  bool quantized = false;  // every block, and in 8 bits on a CPU too, which otherwise computes in fp32
  Element element = Element::fp32;
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // of k and v, each of which serves heads / kv_heads neighbours of q; 0: as many as heads
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t head_dim = 0;
  StridedRows q{}, k{}, v{}, out{};  // on a GPU out may be q: queries are read before the first output is written
  float* out_scale = nullptr;        // [batch]: out is e4m3, and these are its scales; see writes_e4m3()
  float* lse = nullptr;              // [batch, heads, queries], natural log; null: not wanted
  double scale = 1;
  int64_t text_tokens = 0;               // the last tokens of q and k
  bool causal = false;                   // query i sees keys up to i + keys - queries
  const int64_t* key_lengths = nullptr;  // [batch]; null: every key counts
  CallPolicy policy{};
  const uint8_t* map =
      nullptr;                // 0: drop, [batch, heads, ceil(queries / map_rows), ceil(keys / 64)]; replaces selection
  int64_t map_rows = kBlock;  // or 2 kBlock
  CallPrologue prologue{};
  const HeadPart* part = nullptr;     // where these are only some of the heads; null: they are all
  uint64_t* counts = nullptr;         // [4]: blocks kept, without P.V, of means, predicted error in 2^-24; added to
  bool predicts_error = false;        // count the predicted error even where no head is chosen by it: it takes time
  bool leaves_out_attention = false;  // benchmarks: a GPU's call without its last step

  int64_t heads_of_keys() const { return kv_heads == 0 ? heads : kv_heads; }
  int64_t all_heads() const { return part == nullptr ? heads : part->all; }
  /// Heads of q that share one of k and v.
  int64_t group() const { return heads / heads_of_keys(); }
  /// Whether every block is asked for, unless the caller has a map.
  bool is_dense() const { return quantized || policy.dense; }
  /// Tokens that share a mean in what stands for the blocks that the call drops; 0: nothing does, or none is dropped.
  int64_t mean_cell() const {
    const bool drops = map != nullptr || !is_dense();
    return drops && policy.dropped == Dropped::mean ? policy.cell : 0;
  }
};

/// What decides which blocks hold a visible pair, and which have means; key_lengths of the host's memory.
cpu::Problem masks_of(const Call& call, const int64_t* key_lengths);

/// ", means of 16 tokens for dropped blocks" and the like: what is said of a call behind the kernel's name.
std::string means_text(const Call& call);
std::string blocks_text(const Call& call);

}  // namespace sparsereel::attention
