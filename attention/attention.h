// The one attention operator of the program: every 3D attention of every model goes through attend().
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

/// Tables and positions are fp32; weights and biases of any float type.
using Prologue = PrologueOf<at::Tensor, at::Tensor, double>;

/// The prologue's norm of q alone, or of k.
using RowNorm = RowNormOf<at::Tensor>;

/// How many tokens the prologue rotates: the rows of its tables, or of its positions.
int rotary_tokens(const Prologue& prologue);

/// fp16 [Nvideo, D / 2, 2]: cosine and sine of each pair.
at::Tensor rotary_pairs(const Prologue& prologue);

/// What the prologue's norm, which goes across heads, makes of queries, or keys, with all their heads [B, N, H, D]:
/// Prologue::q_moments.
at::Tensor token_moments(const Prologue& prologue, const at::Tensor& x);

struct Context {
  Mode mode = Mode::full;
  CallPolicy policy{};
  int64_t slot = 0;                     // of the workspace: where the call's counts add up
  int64_t text_tokens = 0;              // the last tokens of q and k: always dense, as keys and as queries
  bool causal = false;                  // query i sees keys up to i + Nk - Nq
  at::Tensor key_lengths{};             // int64 [B], keys past the length are padding; undefined: all keys count
  at::Tensor key_bias{};                // fp32 [B, Nk], added to the keys' scores; only mode full, without a block_map
  std::optional<BlockMap> block_map{};  // the caller's own map, obeyed exactly; replaces selection
  std::optional<double> scale{};        // default head_dim^-0.5
  bool return_lse = false;
  bool takes_e4m3 = false;       // out may be e4m3 (Result::out_scale); it never is in mode check or on a CPU
  bool may_overwrite_q = false;  // out may lie where q does, with q's strides; it never does in mode check, on a CPU,
                                 // or where q repeats elements
  Prologue prologue{};
  std::optional<HeadPart> part{};  // where q, k and v have only some of the heads; unset: they have all
  bool only_prepass = false;       // benchmarks: leave out a GPU call's last step, attention itself
};

struct Result {
  at::Tensor out;          // [B, Nq, H, D], q's dtype, or e4m3
  at::Tensor out_scale{};  // fp32 [B]: what out of e4m3 is to be multiplied by; undefined where it has q's dtype
  at::Tensor lse;          // fp32 [B, H, Nq], natural log of the sum over the keys that were computed; only if asked
  Statistics statistics;   // on a GPU without what the kernels count: see collect_counts()
  std::string kernel;      // what ran, e.g. "cpu block-sparse fp32 (avx512)", and why when it is not what was asked for
};

/// Memory that outlives calls; one per thread of execution and stream.
struct Workspace {
  at::Tensor scratch;  // bytes; its content means nothing between calls
  at::Tensor counts;   // int64 [slots, kinds]: what GPU kernels counted since collect_counts()
};

/// softmax(q k^T * scale) v over the blocks that the context keeps.
/// q [B, Nq, H, D], k and v [B, Nk, H, D]: fp16, bf16 or fp32, one dtype on one device, none of them empty, any strides
/// with contiguous D, D from 16 to 256. k and v may have fewer heads, a divisor of q's: each then serves as many
/// neighbours of q, and is read, quantised and kept once. Modes as in call_policy.h; a query row with no key at all
/// gives zeros and lse -inf. Throws Error listing what is required and what is supported when no kernel can do exactly
/// what was asked.
Result attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
              Workspace& workspace);

/// What mode full weighs V with, for callers that have multiplied it with something before: out [B, Nq, H, Nk rounded
/// up to a multiple of 8, the rest zeros] is softmax(q k^T * scale + key_bias), in q's dtype or, where the caller takes
/// it, e4m3 with an out_scale of 1 / 448. q, k, errors as of attend(). Of fp16 and bf16 on a GPU, up to 64 keys, with
/// the prologues and masks of cross-attention to a text; otherwise nullopt.
std::optional<Result> attention_weights(const at::Tensor& q, const at::Tensor& k, const Context& context);

/// Adds what GPU kernels counted since the last collection (blocks kept, skipped and of means, predicted errors) to the
/// statistics of their slots, of which there are more afterwards where the counts have more; waits for the device.
/// attend() itself does only in mode check, or for key_lengths on a GPU.
void collect_counts(Workspace& workspace, std::vector<Statistics>& per_slot);

/// Empty where attend() can run `mode` on tensors of this device and element type, else the reason.
std::string unsupported_reason(Mode mode, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::attention
