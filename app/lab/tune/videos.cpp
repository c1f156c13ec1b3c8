// Makes and times videos. Only one pipeline at a time has its transformer in memory.
#include "app/lab/tune/videos.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "app/jobs/interrupt.h"
#include "app/lab/bench/rows.h"
#include "app/lab/measure/quality.h"
#include "app/lab/measure/timing.h"
#include "models/request/attention_run.h"
#include "models/request/run.h"

namespace sparsereel::app::tuning {
namespace {

using attention::Mode;
using bench::Combination;

/// Each kind of step is timed for about this many seconds, but at least kLeastTimed and at most kMostTimed times.
constexpr double kTimingSeconds = 3;
constexpr int64_t kLeastTimed = 3, kMostTimed = 9;
constexpr const char* kFullWeights = "auto";

}  // namespace

void VideoRuns::poll() {
  context_.progress.stop_if_interrupted();
  context_.deadline.check();
}

void VideoRuns::require_time(double seconds) const {
  if (seconds > context_.deadline.left()) throw OutOfTime{};
}

/// Returns the plan of a prompt's video. The seed grows by one from prompt to prompt, as in `bench quality`.
models::Plan VideoRuns::plan_of(const Combination& combination, size_t prompt) const {
  models::Plan plan = context_.untuned;
  plan.prompt = context_.plan.prompts.at(prompt);
  plan.seed += prompt;
  plan.attention_mode = combination.mode;
  if (combination.sparse()) plan.attention_policy = combination.policy;
  plan.cache = combination.cache;
  plan.exact_steps = combination.exact ? combination.exact->of(plan.num_inference_steps) : 0;
  return plan;
}

Combination VideoRuns::combination_of(const Candidate& candidate) const {
  Combination combination{.mode = candidate.mode,
                          .policy = context_.untuned.attention_policy,
                          .order = context_.untuned.token_order,
                          .cache = candidate.cache,
                          .weights = candidate.weights};
  if (candidate.exact != models::FirstSteps{}) combination.exact = candidate.exact;
  if (candidate.topk) {
    combination.policy.defaults.selection = attention::Selection::topk;
    combination.policy.defaults.topk = *candidate.topk;
  }
  if (candidate.block_error) {
    combination.policy.defaults.selection = attention::Selection::block_error;
    combination.policy.defaults.block_error = *candidate.block_error;
  }
  combination.policy.dense_steps = candidate.sparse() ? candidate.dense.of(context_.untuned.num_inference_steps) : 0;
  return combination;
}

void VideoRuns::encode_prompts() {
  std::vector<models::Plan> plans;
  for (size_t prompt = 0; prompt < context_.plan.prompts.size(); ++prompt)
    plans.push_back(plan_of({.mode = Mode::full}, prompt));
  texts_ = encode_texts(*context_.pipelines.begin()->second, plans, *context_.plan.pictures, context_.progress,
                        [this](int64_t) { poll(); });
}

models::Pipeline& VideoRuns::with_transformer(const std::string& weights) {
  for (const auto& [name, pipeline] : context_.pipelines)
    if (name != weights) pipeline->release_transformer();
  models::Pipeline& pipeline = *context_.pipelines.at(weights);
  load_transformer(pipeline, context_.untuned, context_.progress);
  return pipeline;
}

std::unique_ptr<models::Denoising> VideoRuns::start(const Combination& combination, size_t prompt) {
  return with_transformer(combination.weights).start_denoising(plan_of(combination, prompt), texts_.at(prompt));
}

void VideoRuns::make_references() {
  for (size_t prompt = 0; prompt < context_.plan.prompts.size(); ++prompt) {
    at::Tensor& latents = context_.own.state.latents[static_cast<int64_t>(prompt)];
    if (latents.defined()) continue;
    context_.own.state.latents.erase(static_cast<int64_t>(prompt));
    const auto denoising =
        start({.mode = Mode::full, .order = context_.untuned.token_order, .weights = kFullWeights}, prompt);
    context_.progress.stage("full attention, prompt " + std::to_string(prompt + 1) + " of " +
                            std::to_string(context_.plan.prompts.size()));
    require_time(step_seconds_ * static_cast<double>(denoising->steps()));
    const auto begun = std::chrono::steady_clock::now();
    while (!denoising->finished()) {
      context_.progress.round(denoising->done(), denoising->steps());
      context_.deadline.check();
      denoising->step();
    }
    step_seconds_ = seconds_since(begun) / static_cast<double>(denoising->steps());
    context_.own.state.latents[static_cast<int64_t>(prompt)] =
        denoising->latents().to(at::kCPU, at::kFloat).contiguous();
    context_.save();
  }
}

/// Returns, for each combination, the milliseconds of a few of its steps. A first round warms up and does not count.
std::vector<std::vector<double>> VideoRuns::take_turns(const std::vector<Combination>& all) {
  std::vector<std::vector<double>> milliseconds(all.size());
  std::vector<std::unique_ptr<models::Denoising>> runs(all.size());
  const int64_t rounds = std::min(kMostTimed, context_.untuned.num_inference_steps);
  const auto begun = std::chrono::steady_clock::now();
  for (int64_t round = -1; round < rounds; ++round) {
    context_.progress.round(round + 1, rounds + 1);
    if (round >= kLeastTimed && seconds_since(begun) > kTimingSeconds) break;
    for (size_t i = 0; i < all.size(); ++i) {
      context_.deadline.check();
      if (round <= 0) runs[i] = start(all[i], 0);
      runs[i]->load_expert();  // before the clock starts
      const double taken = milliseconds_of(context_.pipelines.at(all[i].weights)->device(), [&] { runs[i]->step(); });
      if (round >= 0) milliseconds[i].push_back(taken);
    }
  }
  return milliseconds;
}

void VideoRuns::time_steps(const std::string& weights, const std::vector<std::optional<double>>& topks) {
  std::vector<Candidate> kinds = {{.mode = Mode::quantized, .weights = weights}};
  kinds.push_back({.mode = Mode::full, .weights = weights});
  for (const std::optional<double>& topk : topks) kinds.push_back({.topk = topk, .weights = weights});
  std::vector<Combination> missing;
  const bench::StepTimes known = times();
  for (const Candidate& kind : kinds)
    if (Combination each = combination_of(kind); !cost_of(each, known)) missing.push_back(std::move(each));
  if (missing.empty()) return;
  with_transformer(weights);
  context_.progress.stage("time steps");
  const auto taken = take_turns(missing);
  for (size_t i = 0; i < missing.size(); ++i) {
    Row row = bench::step_row(missing[i]);
    row.update({{"ms", spread(taken[i]).median}, {"layers", context_.pipelines.at(weights)->spec().layers}});
    context_.own.state.steps.push_back(std::move(row));
  }
  context_.save();
}

bench::StepTimes VideoRuns::times() const {
  bench::StepTimes times;
  for (const Row& row : context_.own.state.steps) times.steps.push_back({row, row.at("layers").get<int64_t>(), ""});
  return times;
}

at::Tensor VideoRuns::decode(const at::Tensor& latents) {
  models::Run run;
  run.cancelled = [this] { return interrupted() || context_.deadline.left() <= 0; };
  const auto begun = std::chrono::steady_clock::now();
  try {
    at::Tensor frames = context_.pipelines.begin()->second->decode(latents, context_.untuned.vae_tiling, run).frames;
    decode_seconds_ = seconds_since(begun);
    return frames;
  } catch (const models::Cancelled&) {
    poll();  // throws an exception that says whether the user or the budget ended the run
    throw;
  }
}

const at::Tensor& VideoRuns::reference(size_t prompt) {
  at::Tensor& frames = references_[prompt];
  if (!frames.defined()) frames = decode(context_.own.state.latents.at(static_cast<int64_t>(prompt)));
  return frames;
}

Seen VideoRuns::compare(const Candidate& candidate, size_t prompt, const attention::Policy* policy) {
  Combination combination = combination_of(candidate);
  if (policy != nullptr) {
    const int64_t dense_steps = combination.policy.dense_steps;
    combination.policy = *policy;
    combination.policy.dense_steps = dense_steps;
  }
  const at::Tensor& expected = reference(prompt);
  const auto denoising = start(combination, prompt);
  context_.progress.stage(name(candidate) + ", prompt " + std::to_string(prompt + 1));
  require_time(decode_seconds_);
  while (!denoising->finished()) {
    context_.progress.round(denoising->done(), denoising->steps());
    context_.deadline.check();
    denoising->step();
  }
  const models::AttentionRun& run = denoising->attention();
  const Fidelity near = fidelity(decode(denoising->latents().to(at::kCPU, at::kFloat).contiguous()), expected,
                                 context_.pipelines.begin()->second->device());
  return {.psnr = near.psnr,
          .ssim = near.ssim,
          .computed_steps = static_cast<double>(models::computed_steps(run)),
          .computed_dense_steps = static_cast<double>(models::computed_dense_steps(run)),
          .share = models::kept_share(run).value_or(1)};
}

double VideoRuns::speedup_of(const Candidate& candidate, const attention::Policy& policy) {
  Combination own = combination_of(candidate), by_head = own;
  by_head.policy = policy;
  for (Combination* each : {&own, &by_head}) {
    each->cache = {};
    each->policy.dense_steps = 0;
  }
  with_transformer(candidate.weights);
  context_.progress.stage("time steps");
  const auto taken = take_turns({own, by_head});
  return spread(taken[0]).median / spread(taken[1]).median;
}

std::optional<StepCost> cost_of(const Combination& combination, const bench::StepTimes& times) {
  const auto seconds_of = [&](double computed, double dense, int64_t steps) {
    Row row = bench::fields_of(combination);
    row.erase("exact_steps");  // none of these steps is exact
    row.update({{"computed_steps", computed}, {"computed_dense_steps", dense}});
    times.fill(row, steps);
    return number_of(row, "denoise_seconds");
  };
  const auto own = seconds_of(1, 0, 1), with_reused = seconds_of(1, 0, 2);
  const auto every_block = combination.policy.dense_steps > 0 ? seconds_of(1, 1, 1) : own;
  if (!own || !with_reused || !every_block) return {};
  StepCost cost{.own = *own * 1000, .every_block = *every_block * 1000, .reused = (*with_reused - *own) * 1000};
  const bool bounded = combination.sparse() && !combination.by_head() &&
                       combination.policy.defaults.selection == attention::Selection::block_error;
  if (bounded) cost.by_share = times.by_share(bench::fields_of(combination));
  return cost;
}

}  // namespace sparsereel::app::tuning
