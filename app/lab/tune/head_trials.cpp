// Runs attention::attend() for one head at a time.
#include "app/lab/tune/head_trials.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "attention/prologue.h"
#include "models/request/attention_run.h"

namespace sparsereel::app::tuning {
namespace {

constexpr double kBroken = 1e30;  // replaces a sum with NaN or Inf, because only finite numbers can be saved

double sum_of_magnitudes(const at::Tensor& x) {
  const double sum = x.abs().sum(at::kDouble).item<double>();
  return std::isfinite(sum) ? sum : kBroken;
}

}  // namespace

/// Returns q, k and v of one entry of the call's batch, with norm and rotary embedding (the prologue) applied.
HeadTrials::Inputs HeadTrials::inputs_of(const models::AttentionCall& call, int64_t entry) {
  const auto only = [entry](const at::Tensor& x) { return x.narrow(0, entry, 1); };
  Inputs inputs;
  const auto [q, k] =
      attention::apply_prologue(call.context.prologue, only(call.q), only(call.k), call.context.text_tokens);
  inputs.q = q;
  inputs.k = k;
  inputs.v = only(call.v);
  inputs.context = call.context;
  inputs.context.mode = attention::Mode::full;
  inputs.context.policy = {};
  inputs.context.prologue = {};
  if (call.context.key_lengths.defined()) inputs.context.key_lengths = only(call.context.key_lengths);
  return inputs;
}

HeadTrials::HeadTrials(const attention::BlockPolicy& untuned, int64_t selection_rows, std::function<void()> poll)
    : untuned_(untuned), selection_rows_(selection_rows), poll_(std::move(poll)) {}

attention::Trial HeadTrials::measure(const Inputs& inputs, int64_t head, const at::Tensor& expected,
                                     const attention::HeadPolicy& policy, int64_t selection_rows) {
  attention::Context context = inputs.context;
  context.mode = attention::Mode::sparse;
  context.slot = 0;  // the policy and the counts are those of a model with one layer and one head
  context.policy = {untuned_};
  context.policy.defaults = policy;
  context.policy.selection_rows = selection_rows;
  context.policy.dense_operations = 0;  // a call with one head is short, and short calls could switch to full attention
  const auto only = [head](const at::Tensor& x) { return x.narrow(2, head, 1); };
  const attention::Result result =
      attention::attend(only(inputs.q), only(inputs.k), only(inputs.v), context, workspace_);
  std::vector<attention::Statistics> counts = {result.statistics};
  attention::collect_counts(workspace_, counts);
  return {.error = sum_of_magnitudes(result.out.to(at::kFloat) - expected),
          .size = sum_of_magnitudes(expected),
          .total_blocks = static_cast<double>(counts[0].total_blocks),
          .kept_blocks = static_cast<double>(counts[0].kept_blocks),
          .skipped_pv_blocks = static_cast<double>(counts[0].skipped_pv_blocks),
          .calls = 1};
}

void HeadTrials::run(const models::AttentionCall& call, HeadSearches& searches) {
  std::vector<attention::HeadSearch>& heads = searches.at(static_cast<size_t>(call.layer));
  // Each entry of the batch is a guidance pass. The entries take turns: each call is measured on one of them.
  const Inputs inputs = inputs_of(call, heads.front().calls() % call.q.size(0));
  const at::Tensor full = attention::attend(inputs.q, inputs.k, inputs.v, inputs.context, workspace_).out;
  for (size_t head = 0; head < heads.size(); ++head) {
    const auto index = static_cast<int64_t>(head);
    const at::Tensor expected = full.narrow(2, index, 1).to(at::kFloat);
    heads[head].begin_call();
    while (const auto policy = heads[head].wanted()) {
      poll_();
      const int64_t rows = heads[head].wants_untuned() ? untuned_.selection_rows : selection_rows_;
      heads[head].report(measure(inputs, index, expected, *policy, rows));
    }
  }
}

}  // namespace sparsereel::app::tuning
