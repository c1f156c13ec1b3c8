// Sampling and whole videos within the budget; see session.h.
#include "app/commands/tune/session.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "app/commands/bench/quality.h"
#include "app/interrupt.h"
#include "hilbert/error.h"
#include "models/device.h"

namespace sparsereel::app::tuning {
namespace {

using attention::DenseSearch;
using attention::DenseStart;
using attention::HeadSearch;

constexpr double kSamplingShare = 0.5;  // of the budget; the rest is for whole videos
constexpr double kEqualPsnr = 100;      // dB, for frames without a difference
constexpr int64_t kVideosAfterFirst = 3;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::vector<attention::HeadChoice>> untuned_choices(const HeadSearches& heads) {
  std::vector<std::vector<attention::HeadChoice>> choices;
  for (const auto& layer : heads) {
    choices.emplace_back();
    for (const HeadSearch& head : layer) choices.back().push_back(head.untuned());
  }
  return choices;
}

attention::Policy policy_with(const Found& found, const DenseStart& dense, int64_t selection_rows) {
  attention::Policy policy;
  policy.selection_rows = selection_rows;
  policy.dense_steps = dense.steps;
  policy.dense_layers = dense.layers;
  for (const auto& layer : found.heads) {
    policy.per_head.emplace_back();
    for (const attention::HeadChoice& head : layer) policy.per_head.back().push_back(head.policy);
  }
  return policy;
}

}  // namespace

Session::Session(const TunePlan& plan, models::Pipeline& pipeline, bench::Watcher& watcher, const Deadline& deadline,
                 TuneState& state)
    : plan_(plan),
      pipeline_(pipeline),
      watcher_(watcher),
      deadline_(deadline),
      state_(state),
      steps_(pipeline.resolve(plan.request).num_inference_steps),
      selection_rows_(plan.selection_rows(pipeline.device())) {}

models::GenerateRequest Session::request_of(int64_t prompt) const {
  models::GenerateRequest request = plan_.request;
  request.prompt = plan_.prompts[static_cast<size_t>(prompt)];
  return request;
}

void Session::save() const {
  state_.save(state_beside(plan_.output));
}

void Session::encode_prompts() {
  watcher_.stage("text");
  const bool streamed = plan_.run.offload;
  if (!streamed) pipeline_.load_text_encoder();
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    watcher_.stop_if_interrupted();
    deadline_.check();
    texts_.push_back(pipeline_.encode_text(request_of(static_cast<int64_t>(prompt))));
  }
  pipeline_.release_text_encoder();
  watcher_.stage("load transformer");
  pipeline_.load_transformer();
}

/// Whether sampling may end: every head was measured, and there is a video to compare with.
bool Session::has_enough() const {
  return state_.least_calls() > 0 && (plan_.videos == 0 || !state_.latents.empty());
}

/// Returns whether all samples that were planned are there.
bool Session::sample_heads() {
  for (int64_t prompt = 0; prompt < static_cast<int64_t>(plan_.prompts.size()); ++prompt) {
    std::vector<int64_t> missing = plan_.sampled_steps(static_cast<size_t>(prompt), steps_);
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
  watcher_.stage("measure heads, prompt " + std::to_string(prompt + 1) + " of " + std::to_string(plan_.prompts.size()));
  models::GenerateRequest request = request_of(prompt);
  request.attention_mode = attention::Mode::full;
  const auto denoising = pipeline_.start_denoising(request, texts_[static_cast<size_t>(prompt)]);
  HeadTrials trials(selection_rows_, [this] {
    watcher_.stop_if_interrupted();
    deadline_.check();
  });
  const HeadSearch fresh(plan_.request.attention_policy.defaults, plan_.bounds);
  const int64_t end = to_the_end || steps.empty() ? steps_ : steps.back() + 1;
  while (denoising->done() < end) {
    if (has_enough() && deadline_.elapsed() > kSamplingShare * deadline_.seconds()) return false;
    deadline_.check();
    const int64_t step = denoising->done();
    watcher_.round(step, end);
    const bool sampled = std::find(steps.begin(), steps.end(), step) != steps.end();
    HeadSearches heads = sampled ? state_.heads : HeadSearches();  // becomes the state when the step is complete
    denoising->attention().watcher = nullptr;
    if (sampled) {
      denoising->attention().watcher = [&](const models::AttentionCall& call) {
        const auto layer = static_cast<size_t>(call.context.layer);
        if (heads.size() <= layer) heads.resize(layer + 1, {static_cast<size_t>(call.q.size(2)), fresh});
        trials.run(call, heads);
      };
    }
    const auto start = std::chrono::steady_clock::now();
    denoising->step();
    if (!sampled) {
      state_.full_step_seconds = seconds_since(start);
      continue;
    }
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
  models::GenerateObserver observer;
  observer.cancelled = [this] { return interrupted() || deadline_.left() <= 0; };
  const auto start = std::chrono::steady_clock::now();
  try {
    at::Tensor frames = pipeline_.decode(latents, plan_.run.vae_tiling, observer).frames;
    decode_seconds_ = seconds_since(start);
    return frames;
  } catch (const models::Cancelled&) {
    watcher_.stop_if_interrupted();
    throw OutOfTime{};
  }
}

void Session::add_figures(VideoFigures& figures, const at::Tensor& latents, int64_t prompt) {
  if (!references_.contains(prompt)) references_[prompt] = decode(state_.latents.at(prompt));
  const at::Tensor frames = decode(latents);
  const at::Tensor& reference = references_.at(prompt);
  figures.psnr += bench::psnr(frames, reference).value_or(kEqualPsnr);
  figures.ssim += bench::ssim(frames, reference, pipeline_.device());
}

/// One video a policy and prompt; the policies take turns step by step, so that what else the machine does slows all
/// alike.
std::vector<VideoFigures> Session::make_videos(const std::vector<attention::Policy>& policies, int64_t videos) {
  std::vector<VideoFigures> figures(policies.size());
  for (int64_t prompt = 0; prompt < videos; ++prompt) {
    std::vector<std::unique_ptr<models::Denoising>> runs;
    for (const attention::Policy& policy : policies) {
      models::GenerateRequest request = request_of(prompt);
      request.attention_mode = attention::Mode::sparse;
      request.attention_policy = policy;
      runs.push_back(pipeline_.start_denoising(request, texts_[static_cast<size_t>(prompt)]));
    }
    for (int64_t step = 0; step < steps_; ++step) {
      watcher_.round(prompt * steps_ + step, videos * steps_);
      for (size_t i = 0; i < runs.size(); ++i) {
        deadline_.check();
        models::synchronize(pipeline_.device());
        const auto start = std::chrono::steady_clock::now();
        runs[i]->step();
        models::synchronize(pipeline_.device());
        figures[i].step_seconds += seconds_since(start);
      }
    }
    for (size_t i = 0; i < runs.size(); ++i) add_figures(figures[i], runs[i]->latents(), prompt);
  }
  const auto count = static_cast<double>(videos);
  for (VideoFigures& each : figures) {
    each.psnr /= count;
    each.ssim /= count;
    each.step_seconds /= count * static_cast<double>(steps_);
  }
  return figures;
}

/// About what that many videos take.
double Session::video_seconds(int64_t count) const {
  const double step = state_.untuned ? state_.untuned->step_seconds : state_.full_step_seconds;
  return static_cast<double>(count) * (step * static_cast<double>(steps_) + decode_seconds_);
}

bool Session::passes(const VideoFigures& figures) const {
  if (plan_.min_psnr || plan_.min_ssim)
    return figures.psnr >= plan_.min_psnr.value_or(0) && figures.ssim >= plan_.min_ssim.value_or(0);
  return figures.psnr >= state_.untuned->psnr && figures.ssim >= state_.untuned->ssim;
}

/// Returns whether the search came to its end.
bool Session::compare_videos(Found& found) {
  watcher_.stage("compare videos");
  const attention::Policy& untuned = plan_.request.attention_policy;
  const DenseSearch untuned_search(attention::layer_work(untuned_choices(state_.heads)), steps_, 1);
  found.untuned_work = untuned_search.work({.steps = untuned.dense_steps, .layers = untuned.dense_layers});
  DenseSearch search(attention::layer_work(found.heads), steps_, found.untuned_work);
  found.work = search.work({});
  const auto samples = static_cast<int64_t>(state_.sampled.size());
  if (state_.checked_samples != samples) {  // with more samples the heads' choices are others
    state_.checked_samples = samples;
    state_.checked_videos = 0;
    state_.untuned.reset();
    state_.checks.clear();
  }
  if (state_.latents.empty()) return plan_.videos == 0;
  bool complete = true;
  try {
    if (!state_.untuned) {
      if (video_seconds(2) > deadline_.left()) throw OutOfTime{};
      references_[0] = decode(state_.latents.at(0));
      int64_t videos = static_cast<int64_t>(state_.latents.size());
      // One prompt alone, where the untuned policy, the profile and a few attempts at it would else not fit.
      if (video_seconds(videos * (2 + kVideosAfterFirst)) > deadline_.left()) videos = 1;
      const auto both = make_videos({untuned, policy_with(found, {}, selection_rows_)}, videos);
      state_.checked_videos = videos;
      state_.untuned = both[0];
      state_.checks = {both[1]};
      save();
    }
    for (int64_t attempt = 0; search.wanted(); ++attempt) {
      if (attempt >= static_cast<int64_t>(state_.checks.size())) {
        if (video_seconds(state_.checked_videos) > deadline_.left()) throw OutOfTime{};
        state_.checks.push_back(
            make_videos({policy_with(found, *search.wanted(), selection_rows_)}, state_.checked_videos)[0]);
        save();
      }
      const VideoFigures& figures = state_.checks[static_cast<size_t>(attempt)];
      const DenseStart tried = *search.wanted();
      search.report(passes(figures), figures.psnr);
      if (search.found() == tried) found.tuned = figures;
    }
  } catch (const OutOfTime&) {
    complete = false;
  }
  found.untuned = state_.untuned;
  found.dense = search.found();
  found.passed = search.passed() || !found.tuned;  // no video, no verdict
  found.work = search.work(found.dense);
  if (state_.untuned && state_.checks[0].step_seconds > state_.untuned->step_seconds) {
    found.fell_back = true;
    found.heads = untuned_choices(state_.heads);
    found.dense = {.steps = untuned.dense_steps, .layers = untuned.dense_layers};
    found.tuned = state_.untuned;
    found.work = found.untuned_work;
    found.passed = passes(*state_.untuned);
  }
  return complete;
}

Found Session::run() {
  Found found;
  try {
    encode_prompts();
    found.complete = sample_heads();
    if (!found.complete) found.ended_before = "all steps were sampled";
  } catch (const OutOfTime&) {
    if (state_.least_calls() == 0)
      throw run_failure("the budget of " + std::to_string(static_cast<int64_t>(deadline_.seconds())) +
                            " s ended before every head was measured once",
                        "give a larger --budget");
    found.complete = false;
    found.ended_before = "all steps were sampled";
  }
  found.heads = attention::choose(state_.heads);
  if (!compare_videos(found)) {
    if (found.complete) found.ended_before = "all videos were compared";
    found.complete = false;
  }
  return found;
}

}  // namespace sparsereel::app::tuning
