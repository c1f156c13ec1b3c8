// How the attention of a run's transformer goes: what is asked of it, what watchers see, and what is counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attention/call_policy.h"
#include "attention/policies/policy.h"
#include "hilbert/token_order.h"

namespace sparsereel::attention {
struct Context;
}

namespace sparsereel::models {

class Group;

/// What a call of attention::attend() is given, the context's prologue not yet applied. References hold during the
/// watcher's call.
struct AttentionCall {
  const at::Tensor &q, &k, &v;  // [B, N, heads, head_dim], video tokens in the run's order, then text; where ranks
                                // share the heads, this one's, until the next call overwrites them
  const attention::Context& context;
  const hilbert::Grid& grid;  // of the video tokens
  int64_t layer = 0, step = 0;
};

/// How attention runs in one forward, and what it reported.
struct AttentionRun {
  attention::Mode mode = attention::Mode::full;
  attention::Policy policy;
  hilbert::TokenOrder token_order = hilbert::TokenOrder::hilbert;
  int64_t step = 0;
  Group* tokens = nullptr;  // whose ranks share the video's tokens, and in attention its heads; null: this one has all
  std::function<void(const AttentionCall&)> watcher;  // sees each call before it runs; empty: nobody looks
  std::function<void()> attended;                     // likewise after each call
  bool collects = true;              // false: forward() does not wait for a GPU's counts, collect() fetches them
  attention::Statistics statistics;  // summed over layers and forwards
  std::vector<attention::Statistics> per_layer;  // likewise, one a layer
  // Denoising fills these: [step][layer] of what was committed, and the steps that were redone with full attention.
  std::vector<std::vector<attention::Statistics>> per_step;
  std::vector<int64_t> redone_steps;
  std::vector<int64_t> kept_by_rank;  // blocks that each of several ranks kept; statistics are those of all of them
  std::string kernel;                 // what ran last
};

/// Whether the later layers of a step had fewer calls than its first: a cache was used in their place.
bool is_reused_step(const std::vector<attention::Statistics>& layers);
/// The steps whose first blocks alone ran.
std::vector<int64_t> reused_steps(const AttentionRun& run);
/// How many were not.
int64_t computed_steps(const AttentionRun& run);
/// How many of these ran with every block by the policy's dense steps: none in a mode that drops no blocks.
int64_t computed_dense_steps(const AttentionRun& run);
/// The share of the blocks that attention kept in the others, which may leave some out; nothing: there were none.
std::optional<double> kept_share(const AttentionRun& run);

}  // namespace sparsereel::models
