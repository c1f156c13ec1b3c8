// The attention of a run's transformer: its settings, its callbacks and its counts.
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

/// The arguments of one call of attention::attend(), before the context's prologue (norms and rotary embedding) is
/// applied. The references are valid while the watcher runs.
struct AttentionCall {
  /// [B, N, heads, head_dim]: video tokens in the run's token order, then text. If ranks split the heads, these tensors
  /// hold this rank's heads, and the next call overwrites them.
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
  /// The group whose ranks divide the video's tokens among themselves; during attention they divide the heads instead.
  /// Null if this rank has all tokens and heads.
  Group* tokens = nullptr;
  std::function<void(const AttentionCall&)> watcher;  // called before each call of attention; may be empty
  std::function<void()> attended;                     // called after each call; may be empty
  bool collects = true;  // if false, forward() does not wait for the counts of a GPU; collect() fetches them later
  attention::Statistics statistics;              // sum over layers and forward passes
  std::vector<attention::Statistics> per_layer;  // sum over forward passes, for each layer
  // The denoising loop fills the next two members: statistics [step][layer] of the finished steps, and the indices of
  // the steps that were redone with full attention.
  std::vector<std::vector<attention::Statistics>> per_step;
  std::vector<int64_t> redone_steps;
  /// With several ranks: the number of blocks that each rank computed. `statistics` covers all ranks.
  std::vector<int64_t> kept_by_rank;
  std::string kernel;  // name of the kernel that ran last
};

/// Returns true if a cache replaced the step's later layers: the last layer then had fewer calls of attention than the
/// first one. `layers` holds one element for each layer.
bool is_reused_step(const std::vector<attention::Statistics>& layers);
/// Returns the indices of the steps for which is_reused_step() is true.
std::vector<int64_t> reused_steps(const AttentionRun& run);
int64_t computed_steps(const AttentionRun& run);
/// Returns how many of the policy's dense steps were computed, not reused; 0 in a mode that drops no blocks.
int64_t computed_dense_steps(const AttentionRun& run);
/// Returns the share of blocks that attention computed, over the computed steps after the dense steps; nothing if there
/// are no such steps.
std::optional<double> kept_share(const AttentionRun& run);

}  // namespace sparsereel::models
