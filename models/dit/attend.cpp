// Each call of a block's attention: watched, run, counted.
#include "models/dit/attend.h"

#include <utility>

namespace sparsereel::models {

Attend::Attend(AttentionRun& run, const TokenPlan& plan, int64_t text_tokens, attention::Workspace& workspace)
    : run_(run), plan_(plan), workspace_(workspace) {
  context_.mode = run.mode;
  context_.policy = run.policy;
  context_.step = run.step;
  context_.text_tokens = text_tokens;
}

at::Tensor Attend::operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              attention::Prologue prologue) {
  context_.prologue = std::move(prologue);
  context_.prologue.rotary_cos = plan_.rotary.cos;
  context_.prologue.rotary_sin = plan_.rotary.sin;
  context_.prologue.rotary_pairs = plan_.rotary_pairs;
  if (run_.watcher) run_.watcher({.q = q, .k = k, .v = v, .context = context_, .grid = plan_.grid});
  const attention::Result result = attention::attend(q, k, v, context_, workspace_);
  if (run_.attended) run_.attended();
  run_.per_layer[static_cast<size_t>(context_.layer)] += result.statistics;
  run_.kernel = result.kernel;
  return result.out;
}

at::Tensor Attend::cross(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, attention::Prologue prologue,
                         const at::Tensor& key_bias) {
  return attention::attend(q, k, v, {.key_bias = key_bias, .prologue = std::move(prologue)}, workspace_).out;
}

}  // namespace sparsereel::models
