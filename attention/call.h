// One call of attention, described by pointers and sizes. The torch operator and the C library both create a Call, and
// every kernel reads its input from one. No torch, no CUDA header.
#pragma once

#include <cstdint>
#include <string>

#include "attention/call_policy.h"
#include "attention/call_types.h"
#include "attention/cpu/kernel_params.h"
#include "attention/head_part.h"

namespace sparsereel::attention {

/// One call: out = softmax(q k^T scale) v over the blocks that the policy or the map selects. Pointers are to memory of
/// the call's device, except those in policy and part. On a GPU, out may be the memory of q, because the queries are
/// read before the first output is written. out_scale may be set only if writes_e4m3() returns true.
struct Call : CallSizes<int64_t>, CallTensors, CallScores<int64_t, double> {
  bool quantized = false;  // compute every block, in 8 bits on a CPU too; without this flag, a CPU computes in fp32
  CallPolicy policy{};
  /// [batch, heads, ceil(queries / map_rows), ceil(keys / 64)]; 0 drops a block. A map replaces the policy's selection;
  /// null if there is none.
  const uint8_t* map = nullptr;
  int64_t map_rows = kBlock;  // queries that share a row of the map: kBlock or 2 * kBlock
  CallPrologue prologue{};
  const HeadPart* part = nullptr;  // null if the call has all heads
  /// Four counters that the call adds to: computed blocks, computed blocks whose P.V was skipped, the cost of means as
  /// a number of blocks, and the predicted error in units of 2^-24. Null if not wanted.
  uint64_t* counts = nullptr;
  bool predicts_error = false;        // a GPU predicts the error even if no head selects blocks by it; this takes time
  bool leaves_out_attention = false;  // for benchmarks: a GPU call skips its last step

  int64_t all_heads() const { return part == nullptr ? heads : part->all; }
  /// Returns true if every block is computed because of the policy or `quantized`. A caller's map may still drop
  /// blocks.
  bool is_dense() const { return quantized || policy.dense; }
  /// Returns the number of tokens that one mean represents; 0 if no block is dropped or nothing replaces dropped
  /// blocks.
  int64_t mean_cell() const {
    const bool drops = map != nullptr || !is_dense();
    return drops && policy.dropped == Dropped::mean ? policy.cell : 0;
  }
};

/// Returns the sizes and masks of a call. They determine which blocks hold a visible pair of query and key, and which
/// blocks have means. key_lengths: [batch] in host memory; null if there is no padding.
cpu::KernelParams masks_of(const Call& call, const int64_t* key_lengths);

/// means_text() and blocks_text() return parts of a call's description, such as ", means of 16 tokens for dropped
/// blocks". They follow the kernel's name.
std::string means_text(const Call& call);
std::string blocks_text(const Call& call);

}  // namespace sparsereel::attention
