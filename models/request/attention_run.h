// The attention of a run's transformer: its settings, its observer and its counts.
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

/// The arguments of one call of attention::attend(), before the context's prologue is applied. The references are valid
/// while the watcher runs.
struct AttentionCall {
  /// [B, N, heads, head_dim]: video tokens in the run's order, then text. If ranks split the heads, these tensors hold
  /// this rank's heads, and the next call overwrites them.
  const at::Tensor &q, &k, &v;
  const attention::Context& context;
  const hilbert::Grid& grid;  // grid of the video tokens
  int64_t layer = 0, step = 0;
};

/// The settings of attention in a forward pass, and its statistics.
struct AttentionRun {
  attention::Mode mode = attention::Mode::full;
  attention::Policy policy;
  hilbert::TokenOrder token_order = hilbert::TokenOrder::hilbert;
  int64_t step = 0;
  /// group whose ranks split the video's tokens, and in attention the heads; null if this rank has all of them
  Group* tokens = nullptr;
  std::function<void(const AttentionCall&)> watcher;  // called before each call of attention; may be empty
  std::function<void()> attended;                     // called after each call; may be empty
  bool collects = true;  // if false, forward() does not wait for the counts of a GPU; collect() fetches them later
  attention::Statistics statistics;              // sum over layers and forward passes
  std::vector<attention::Statistics> per_layer;  // sum over forward passes, for each layer
  // The denoising loop fills these: [step][layer] of the committed steps, and the steps redone with full attention.
  std::vector<std::vector<attention::Statistics>> per_step;
  std::vector<int64_t> redone_steps;
  std::vector<int64_t> kept_by_rank;  // blocks that each rank kept, with several ranks; `statistics` covers all ranks
  std::string kernel;                 // name of the kernel that ran last
};

/// Returns true if a step's later layers had fewer calls than its first layer, because a cache replaced those calls.
bool is_reused_step(const std::vector<attention::Statistics>& layers);
/// Returns the steps that ran only their first block.
std::vector<int64_t> reused_steps(const AttentionRun& run);
int64_t computed_steps(const AttentionRun& run);
/// Returns the number of computed steps that were dense because of the policy's dense steps; 0 in a mode that drops no
/// blocks.
int64_t computed_dense_steps(const AttentionRun& run);
/// Returns the fraction of blocks kept in computed steps after the dense steps; nothing if there were no such steps.
std::optional<double> kept_share(const AttentionRun& run);

}  // namespace sparsereel::models
