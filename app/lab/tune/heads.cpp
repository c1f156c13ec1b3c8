// Measures heads while runs of the prompts compute attention, and chooses their policies.
#include "app/lab/tune/heads.h"

#include <algorithm>
#include <numeric>

#include "app/lab/measure/timing.h"
#include "models/request/attention_run.h"

namespace sparsereel::app::tuning {
namespace {

/// The share of the remaining budget that measuring heads may take. Comparing whole videos takes the rest.
constexpr double kMeasuringShare = 0.5;

double mean(const std::vector<double>& values) {
  return values.empty() ? 1 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<std::vector<attention::HeadChoice>> untuned_choices(const HeadSearches& heads) {
  std::vector<std::vector<attention::HeadChoice>> choices;
  for (const auto& layer : heads) {
    choices.emplace_back();
    for (const attention::HeadSearch& head : layer) choices.back().push_back(head.untuned());
  }
  return choices;
}

bench::Combination blocks_alone(bench::Combination combination) {
  combination.cache = {};
  combination.policy.dense_steps = 0;
  return combination;
}

}  // namespace

HeadPhase::HeadPhase(const TuneContext& context, const Candidate& candidate, VideoRuns& videos)
    : context_(context),
      untuned_(blocks_alone(videos.combination_of(candidate))),
      videos_(videos),
      heads_(context.own.state.heads),
      fresh_(untuned_.policy.defaults, context.plan.bounds),
      selection_rows_(TunePlan::selection_rows(context.untuned)),
      ends_(context.deadline.elapsed() + kMeasuringShare * context.deadline.left()) {
  if (heads_.setting != name(candidate)) heads_ = {.setting = name(candidate), .topk = candidate.topk};
}

bool HeadPhase::measure() {
  for (size_t prompt = 0; prompt < context_.plan.prompts.size(); ++prompt) {
    std::vector<int64_t> missing = context_.plan.sampled_steps(prompt, context_.untuned.num_inference_steps);
    std::erase_if(missing, [&](int64_t step) { return heads_.sampled.contains({static_cast<int64_t>(prompt), step}); });
    if (!missing.empty() && !measure_prompt(prompt, missing)) return false;
  }
  return true;
}

bool HeadPhase::measure_prompt(size_t prompt, const std::vector<int64_t>& steps) {
  bench::Combination full = untuned_;
  full.mode = attention::Mode::full;
  const auto denoising = videos_.start(full, prompt);
  context_.progress.stage("measure heads, prompt " + std::to_string(prompt + 1) + " of " +
                          std::to_string(context_.plan.prompts.size()));
  HeadTrials trials(untuned_.policy, selection_rows_, [this] { videos_.poll(); });
  const int64_t end = steps.back() + 1;
  while (denoising->done() < end) {
    if (context_.own.state.least_calls() > 0 && context_.deadline.elapsed() > ends_) return false;
    context_.deadline.check();
    const int64_t step = denoising->done();
    context_.progress.round(step, end);
    const bool sampled = std::ranges::find(steps, step) != steps.end();
    HeadSearches heads = sampled ? heads_.searches : HeadSearches();  // a copy, which is lost if the step throws
    denoising->attention().watcher = nullptr;
    if (sampled) {
      denoising->attention().watcher = [&](const models::AttentionCall& call) {
        const auto layer = static_cast<size_t>(call.layer);
        if (heads.size() <= layer) heads.resize(layer + 1, {static_cast<size_t>(call.q.size(2)), fresh_});
        trials.run(call, heads);
      };
    }
    denoising->step();
    if (!sampled) continue;
    heads_.searches = std::move(heads);
    heads_.sampled.insert({static_cast<int64_t>(prompt), step});
    context_.save();
  }
  return true;
}

FoundHeads HeadPhase::found() const {
  const HeadSearches& searches = heads_.searches;
  FoundHeads found{
      .choices = context_.plan.bounds_asked ? attention::within_bounds(searches) : attention::choose(searches),
      .selection_rows = selection_rows_};
  found.untuned_work = mean(attention::layer_work(untuned_choices(searches)));
  found.work = mean(attention::layer_work(found.choices));
  return found;
}

attention::Policy HeadPhase::policy_of(const FoundHeads& found) const {
  attention::Policy policy = untuned_.policy;
  policy.selection_rows = found.selection_rows;
  for (const auto& layer : found.choices) {
    policy.per_head.emplace_back();
    for (const attention::HeadChoice& head : layer) policy.per_head.back().push_back(head.policy);
  }
  return policy;
}

}  // namespace sparsereel::app::tuning
