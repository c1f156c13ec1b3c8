// Sampling and whole videos within the budget.
#include "app/commands/tune/session.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "app/clock.h"
#include "app/job/interrupt.h"
#include "app/measure/quality.h"
#include "app/measure/timing.h"
#include "hilbert/error.h"

namespace sparsereel::app::tuning {
namespace {

using attention::DenseSearch;
using attention::DenseStart;
using attention::HeadSearch;

constexpr double kSamplingShare = 0.5;  // of the budget; the rest is for whole videos
constexpr int64_t kChecksAfterFirst = 3;

std::vector<std::vector<attention::HeadChoice>> untuned_choices(const HeadSearches& heads) {
  std::vector<std::vector<attention::HeadChoice>> choices;
  for (const auto& layer : heads) {
    choices.emplace_back();
    for (const HeadSearch& head : layer) choices.back().push_back(head.untuned());
  }
  return choices;
}

/// `untuned`: what stands for dropped blocks, and what they are ranked by, is not searched for.
attention::Policy policy_with(const Found& found, const DenseStart& dense, const attention::Policy& untuned) {
  attention::Policy policy = untuned;
  policy.selection_rows = found.selection_rows;
  policy.dense_steps = dense.steps;
  policy.dense_layers = dense.layers;
  policy.per_head.clear();
  for (const auto& layer : found.heads) {
    policy.per_head.emplace_back();
    for (const attention::HeadChoice& head : layer) policy.per_head.back().push_back(head.policy);
  }
  return policy;
}

}  // namespace

Session::Session(const TunePlan& plan, const models::Plan& untuned, models::Pipeline& pipeline, RunProgress& progress,
                 const Deadline& deadline, OwnState& own)
    : plan_(plan),
      untuned_(untuned),
      pipeline_(pipeline),
      progress_(progress),
      deadline_(deadline),
      state_file_(own.path),
      state_(own.state),
      selection_rows_(TunePlan::selection_rows(untuned)) {}

models::Plan Session::plan_of(int64_t prompt) const {
  models::Plan plan = untuned_;
  plan.prompt = plan_.prompts[static_cast<size_t>(prompt)];
  return plan;
}

void Session::poll() {
  progress_.stop_if_interrupted();
  deadline_.check();
}

void Session::save() const {
  state_.save(state_file_);
}

/// Whether sampling may end: every head was measured, and there is a video to compare with.
bool Session::has_enough() const {
  return state_.least_calls() > 0 && (plan_.videos == 0 || !state_.latents.empty());
}

/// Returns whether all samples that were planned are there.
bool Session::sample_heads() {
  for (int64_t prompt = 0; prompt < static_cast<int64_t>(plan_.prompts.size()); ++prompt) {
    std::vector<int64_t> missing = plan_.sampled_steps(static_cast<size_t>(prompt), untuned_.num_inference_steps);
    std::erase_if(missing, [&](int64_t step) { return state_.sampled.contains({prompt, step}); });
    const bool wants_video = prompt < plan_.videos && !state_.latents.contains(prompt);
    if (missing.empty() && !wants_video) continue;
    if (!sample_prompt(prompt, missing, wants_video)) return false;
  }
  return true;
}

/// A run with full attention, in whose `steps` the heads are measured; `to_the_end`: its latents are wanted. Returns
/// false where the share of the budget ended it.
bool Session::sample_prompt(int64_t prompt, const std::vector<int64_t>& steps, bool to_the_end) {
  progress_.stage("measure heads, prompt " + std::to_string(prompt + 1) + " of " +
                  std::to_string(plan_.prompts.size()));
  models::Plan plan = plan_of(prompt);
  plan.attention_mode = attention::Mode::full;
  const auto denoising = pipeline_.start_denoising(plan, texts_[static_cast<size_t>(prompt)]);
  HeadTrials trials(untuned_.attention_policy, selection_rows_, [this] { poll(); });
  const HeadSearch fresh(untuned_.attention_policy.defaults, plan_.bounds);
  const int64_t end = to_the_end || steps.empty() ? untuned_.num_inference_steps : steps.back() + 1;
  while (denoising->done() < end) {
    if (has_enough() && deadline_.elapsed() > kSamplingShare * deadline_.seconds()) return false;
    deadline_.check();
    const int64_t step = denoising->done();
    progress_.round(step, end);
    const bool sampled = std::find(steps.begin(), steps.end(), step) != steps.end();
    HeadSearches heads = sampled ? state_.heads : HeadSearches();  // becomes the state when the step is complete
    double trial_seconds = 0;
    denoising->attention().watcher = nullptr;
    if (sampled) {
      denoising->attention().watcher = [&](const models::AttentionCall& call) {
        const auto layer = static_cast<size_t>(call.layer);
        if (heads.size() <= layer) heads.resize(layer + 1, {static_cast<size_t>(call.q.size(2)), fresh});
        trial_seconds += milliseconds_of(pipeline_.device(), [&] { trials.run(call, heads); }) / 1000;
      };
    }
    const auto start = std::chrono::steady_clock::now();
    denoising->step();
    state_.full_step_seconds = seconds_since(start) - trial_seconds;
    if (!sampled) continue;
    state_.heads = std::move(heads);
    state_.sampled.insert({prompt, step});
    save();
  }
  if (to_the_end) {
    state_.latents[prompt] = denoising->latents().to(at::kCPU, at::kFloat).contiguous();
    save();
  }
  return true;
}

at::Tensor Session::decode(const at::Tensor& latents) {
  models::Run run;
  run.cancelled = [this] { return interrupted() || deadline_.left() <= 0; };
  const auto start = std::chrono::steady_clock::now();
  try {
    at::Tensor frames = pipeline_.decode(latents, untuned_.vae_tiling, run).frames;
    decode_seconds_ = seconds_since(start);
    return frames;
  } catch (const models::Cancelled&) {
    progress_.stop_if_interrupted();
    throw OutOfTime{};
  }
}

void Session::add_figures(VideoFigures& figures, const at::Tensor& latents, int64_t prompt) {
  if (!references_.contains(prompt)) references_[prompt] = decode(state_.latents.at(prompt));
  const at::Tensor frames = decode(latents);
  const Nearness near = nearness(frames, references_.at(prompt), pipeline_.device());
  figures.psnr += near.psnr;
  figures.ssim += near.ssim;
}

/// The profile with that start: videos of the first prompts. Each of their steps takes turns with one of the untuned
/// policy, so that what else the machine does slows both alike. The first check measures the untuned videos, too.
VideoCheck Session::check_videos(const Found& found, const DenseStart& start, int64_t videos) {
  const std::array policies = {untuned_.attention_policy, policy_with(found, start, untuned_.attention_policy)};
  std::array<VideoFigures, 2> figures;
  for (int64_t prompt = 0; prompt < videos; ++prompt) {
    std::vector<std::unique_ptr<models::Denoising>> runs;
    for (const attention::Policy& policy : policies) {
      models::Plan plan = plan_of(prompt);
      plan.attention_mode = attention::Mode::sparse;
      plan.attention_policy = policy;
      runs.push_back(pipeline_.start_denoising(plan, texts_[static_cast<size_t>(prompt)]));
    }
    for (int64_t step = 0; step < untuned_.num_inference_steps; ++step) {
      progress_.round(prompt * untuned_.num_inference_steps + step, videos * untuned_.num_inference_steps);
      for (size_t i = 0; i < runs.size(); ++i) {
        deadline_.check();
        runs[i]->load_expert();  // no part of the step
        figures[i].step_seconds += milliseconds_of(pipeline_.device(), [&] { runs[i]->step(); }) / 1000;
      }
    }
    for (size_t i = state_.untuned ? 1 : 0; i < runs.size(); ++i) add_figures(figures[i], runs[i]->latents(), prompt);
  }
  const auto count = static_cast<double>(videos);
  for (VideoFigures& each : figures) {
    each.psnr /= count;
    each.ssim /= count;
    each.step_seconds /= count * static_cast<double>(untuned_.num_inference_steps);
  }
  if (!state_.untuned) state_.untuned = figures[0];
  return {.start = start, .figures = figures[1], .untuned_step_seconds = figures[0].step_seconds};
}

/// About what a check of that many videos takes: two runs of the denoiser for each that is decoded.
double Session::check_seconds(int64_t videos) const {
  const double step = state_.untuned ? state_.untuned->step_seconds : state_.full_step_seconds;
  return static_cast<double>(videos) * (2 * step * static_cast<double>(untuned_.num_inference_steps) + decode_seconds_);
}

bool Session::passes(const VideoFigures& figures) const {
  if (plan_.min_psnr || plan_.min_ssim)
    return figures.psnr >= plan_.min_psnr.value_or(0) && figures.ssim >= plan_.min_ssim.value_or(0);
  return figures.psnr >= state_.untuned->psnr && figures.ssim >= state_.untuned->ssim;
}

/// The untuned policy's videos and those of the bare profile.
void Session::start_checks(const Found& found) {
  if (check_seconds(1) > deadline_.left()) throw OutOfTime{};
  references_[0] = decode(state_.latents.at(0));
  int64_t videos = static_cast<int64_t>(state_.latents.size());
  // One prompt alone, where this check and a few more would else not fit.
  if (check_seconds(videos * (1 + kChecksAfterFirst)) > deadline_.left()) videos = 1;
  state_.checks = {check_videos(found, {}, videos)};
  state_.checked_videos = videos;
  save();
}

/// Whether the untuned policy, too, keeps what was asked for.
bool Session::may_fall_back(const Found& found) const {
  if (plan_.floor_asked() && found.passed && !passes(*found.untuned)) return false;
  if (!plan_.bounds_asked) return true;
  for (const auto& layer : untuned_choices(state_.heads))
    for (const attention::HeadChoice& head : layer)
      if (!head.policy.dense && head.trial.relative_l1() > plan_.bounds.l2) return false;
  return true;
}

void Session::fall_back(Found& found, const std::string& reason) const {
  const attention::Policy& untuned = untuned_.attention_policy;
  found.fell_back = reason;
  found.heads = untuned_choices(state_.heads);
  found.selection_rows = untuned.selection_rows;
  found.dense = {.steps = untuned.dense_steps, .layers = untuned.dense_layers};
  found.tuned = found.untuned;
  found.work = found.untuned_work;
  found.passed = passes(*found.untuned);
}

/// Returns whether the search came to its end.
bool Session::compare_videos(Found& found) {
  progress_.stage("compare videos");
  const attention::Policy& untuned = untuned_.attention_policy;
  const DenseSearch untuned_search(attention::layer_work(untuned_choices(state_.heads)), untuned_.num_inference_steps,
                                   1);
  found.untuned_work = untuned_search.work({.steps = untuned.dense_steps, .layers = untuned.dense_layers});
  // A floor that was asked for is worth any number of dense steps.
  DenseSearch search(attention::layer_work(found.heads), untuned_.num_inference_steps,
                     plan_.floor_asked() ? 1 : found.untuned_work);
  found.work = search.work({});
  const auto samples = static_cast<int64_t>(state_.sampled.size());
  if (state_.checked_samples != samples) {  // with more samples the heads' choices are others
    state_.checked_samples = samples;
    state_.checked_videos = 0;
    state_.untuned.reset();
    state_.checks.clear();
  }
  if (plan_.videos == 0) return true;
  if (state_.latents.empty()) return false;
  bool complete = true;
  try {
    if (state_.checks.empty()) start_checks(found);
    while (const auto start = search.wanted()) {
      if (state_.check_of(*start) == nullptr) {
        if (check_seconds(state_.checked_videos) > deadline_.left()) throw OutOfTime{};
        state_.checks.push_back(check_videos(found, *start, state_.checked_videos));
        save();
      }
      const VideoFigures& figures = state_.check_of(*start)->figures;
      search.report(passes(figures), figures.psnr);
    }
  } catch (const OutOfTime&) {
    complete = false;
  }
  if (state_.checks.empty()) return complete;  // no video, no verdict
  found.dense = search.found();
  found.passed = search.passed();
  found.work = search.work(found.dense);
  const VideoCheck& chosen = *state_.check_of(found.dense);
  found.tuned = chosen.figures;
  found.untuned = state_.untuned;
  found.untuned->step_seconds = chosen.untuned_step_seconds;
  if (!may_fall_back(found)) return complete;
  if (found.tuned->step_seconds > found.untuned->step_seconds)
    fall_back(found, "no policy within the bounds was faster than the untuned one");
  else if (!found.passed && passes(*found.untuned))
    fall_back(found, "only the untuned policy reaches the quality floor; smaller --l1 and --l2 may find others");
  return complete;
}

Found Session::run() {
  Found found;
  try {
    std::vector<models::Plan> plans;
    for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt)
      plans.push_back(plan_of(static_cast<int64_t>(prompt)));
    texts_ = encode_texts(pipeline_, plans, progress_, [this](int64_t) { poll(); });
    load_transformer(pipeline_, progress_);
    found.complete = sample_heads();
    if (!found.complete) found.ended_before = "all steps were sampled";
  } catch (const OutOfTime&) {
    if (state_.least_calls() == 0)
      throw run_failure("--budget " + plan_.budget + " ended before every head was measured once",
                        "give a larger --budget, or fewer --steps or a smaller --size");
    found.complete = false;
    found.ended_before = "all steps were sampled";
  }
  found.heads = plan_.bounds_asked ? attention::within_bounds(state_.heads) : attention::choose(state_.heads);
  found.selection_rows = selection_rows_;
  if (!compare_videos(found)) {
    if (found.complete) found.ended_before = "all videos were compared";
    found.complete = false;
  }
  return found;
}

}  // namespace sparsereel::app::tuning
