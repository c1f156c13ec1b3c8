// Counts the steps that were computed, and the blocks that their attention computed.
#include "models/request/attention_run.h"

#include <algorithm>

namespace sparsereel::models {

bool is_reused_step(const std::vector<attention::Statistics>& layers) {
  return layers.back().calls < layers.front().calls;
}

std::vector<int64_t> reused_steps(const AttentionRun& run) {
  std::vector<int64_t> steps;
  for (size_t step = 0; step < run.per_step.size(); ++step)
    if (is_reused_step(run.per_step[step])) steps.push_back(static_cast<int64_t>(step));
  return steps;
}

int64_t computed_steps(const AttentionRun& run) {
  return static_cast<int64_t>(run.per_step.size() - reused_steps(run).size());
}

int64_t computed_dense_steps(const AttentionRun& run) {
  if (!attention::drops_blocks(run.mode)) return 0;
  const int64_t dense = std::min(run.policy.dense_steps, std::ssize(run.per_step));
  return dense - std::ranges::count_if(reused_steps(run), [&](int64_t step) { return step < dense; });
}

std::optional<double> kept_share(const AttentionRun& run) {
  attention::Statistics sum;
  const auto dense = static_cast<size_t>(attention::drops_blocks(run.mode) ? run.policy.dense_steps : 0);
  for (size_t step = dense; step < run.per_step.size(); ++step)
    if (!is_reused_step(run.per_step[step]))
      for (const attention::Statistics& layer : run.per_step[step]) sum += layer;
  return sum.calls > 0 ? std::optional(1 - sum.sparsity()) : std::nullopt;
}

}  // namespace sparsereel::models
