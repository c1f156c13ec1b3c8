// The program's only attention operator. The attention layers of all video transformers call attend().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/block_map.h"
#include "attention/call_policy.h"
#include "attention/call_types.h"
#include "attention/head_part.h"

namespace sparsereel::attention {

/// The prologue of a call on tensors. Tables, positions and frequencies are fp32; weights and biases may have any float
/// type.
using Prologue = PrologueOf<at::Tensor, at::Tensor, double>;

/// The arrays of the prologue's norm for q alone or for k alone.
using RowNorm = RowNormOf<at::Tensor>;

/// Returns the number of tokens that the prologue rotates, which is the number of rows of its tables or positions.
int rotary_tokens(const Prologue& prologue);

/// Computes the cosine and sine of each pair of channels from the prologue's tables, fp16 [Nvideo, D / 2, 2]. Store the
/// result in Prologue::rotary_pairs; otherwise every GPU call computes it again.
at::Tensor rotary_pairs(const Prologue& prologue);

/// Returns the mean (0 for an RMS norm) and 1 / deviation of each token of x [B, N, H, D] over all its heads, fp32 [B,
/// N, 2]. The result can be used as Prologue::q_moments or k_moments. Throws Error if the prologue has no norm across
/// heads.
at::Tensor token_moments(const Prologue& prologue, const at::Tensor& x);

/// The settings of a call: its mode, policy, masks and prologue.
struct Context {
  Mode mode = Mode::full;
  CallPolicy policy{};
  int64_t slot = 0;  // row of Workspace::counts that a GPU call adds to
  /// Number of text tokens, the last ones of q and k. The blocks of their queries, and those of their keys, are always
  /// computed.
  int64_t text_tokens = 0;
  bool causal = false;       // query i sees keys up to i + Nk - Nq
  at::Tensor key_lengths{};  // int64 [B]; keys past the length are padding. Undefined if there is no padding
  at::Tensor key_bias{};     // fp32 [B, Nk], added to the keys' scores; mode full only, without a block_map
  /// If set, exactly these blocks are computed, and the policy selects none.
  std::optional<BlockMap> block_map{};
  std::optional<double> scale{};  // head_dim^-0.5 if unset
  bool return_lse = false;
  bool takes_e4m3 = false;  // allows out to be e4m3 (Result::out_scale); no effect in mode check or on CPUs
  /// Allows the call to write out over q. No effect in mode check, on CPUs, or if q repeats elements (stride 0).
  bool may_overwrite_q = false;
  Prologue prologue{};
  std::optional<HeadPart> part{};  // set if q, k and v have only some of the heads
  bool only_prepass = false;       // for benchmarks: a GPU call skips its last step, attention itself
};

struct Result {
  at::Tensor out;          // [B, Nq, H, D], q's dtype, or e4m3
  at::Tensor out_scale{};  // fp32 [B]: factor by which an e4m3 out must be multiplied; undefined if out has q's dtype
  at::Tensor lse;          // if requested: fp32 [B, H, Nq], natural log of the sum of exp(score) over keys and means
  Statistics statistics;   // without the counts of GPU kernels; see collect_counts()
  std::string kernel;  // the kernel that ran, such as "cpu block-sparse fp32 (avx512)"; if it is not the kernel that
                       // was asked for, also the reason
};

/// Memory that calls reuse. Each thread and each stream needs a Workspace of its own.
struct Workspace {
  at::Tensor scratch;  // bytes that need not be kept between calls
  at::Tensor counts;   // int64 [slots, cuda::kCounts]: what GPU kernels have counted since the last collect_counts()
};

/// Computes softmax(q k^T * scale) v over the blocks that the context's mode, policy or block_map selects.
/// q is [B, Nq, H, D]; k and v are [B, Nk, H, D]. All three are not empty and have the same dtype (fp16, bf16 or fp32)
/// and the same device. D (16 to 256) is contiguous; the other strides are free. In grouped-query attention, k and v
/// have fewer heads than q: q's number of heads is a multiple of theirs. Neighboring heads of q then share a head of k
/// and v, which is read, quantized and stored once. See call_policy.h for the modes. A query that sees no key gets
/// zeros and lse -inf. Throws Error if no kernel can compute this call exactly as asked; the message names the calls
/// that are supported.
Result attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
              Workspace& workspace);

/// Returns the attention weights P of mode full, softmax(q k^T * scale + key_bias), for callers that multiply P by
/// their own values. out is P, [B, Nq, H, Nk], where Nk is padded with zeros to a multiple of 8. Its dtype is q's dtype
/// or, if the context allows it, e4m3 with an out_scale of 1 / 448. For q, k, context and errors see attend(). Returns
/// nullopt if no kernel supports the call: it must be in fp16 or bf16 on a GPU, with at most 64 keys and a prologue and
/// masks that has_few_keys_kernel() accepts.
std::optional<Result> attention_weights(const at::Tensor& q, const at::Tensor& k, const Context& context);

/// Adds what GPU kernels have counted since the last collection to the statistics of each slot: computed blocks, blocks
/// whose P.V was skipped, the cost of means, and predicted errors. Waits for the device to finish. (A call of attend()
/// on a GPU waits only in mode check, or if it has key_lengths or a block_map.) Enlarges per_slot if the workspace has
/// more slots.
void collect_counts(Workspace& workspace, std::vector<Statistics>& per_slot);

/// Returns an empty text if attend() can run `mode` on this device and dtype, otherwise the reason why not.
std::string unsupported_reason(Mode mode, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::attention
