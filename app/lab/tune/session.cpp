// Searches settings, then policies for heads, within the budget.
#include "app/lab/tune/session.h"

#include <algorithm>
#include <cmath>

#include "hilbert/error.h"
#include "models/request/sampling.h"

namespace sparsereel::app::tuning {
namespace {

/// If policies for heads save less than this share of the work, or of the time, the profile does without them.
constexpr double kLeastGain = 0.01;

/// Returns a candidate that chooses blocks in every step as the user's settings do.
Candidate blocks_of(const models::Plan& untuned, const std::string& weights) {
  const attention::HeadPolicy& head = untuned.attention_policy.defaults;
  Candidate candidate{.weights = weights};
  if (head.selection == attention::Selection::topk) candidate.topk = head.topk;
  if (head.selection == attention::Selection::block_error) candidate.block_error = head.block_error;
  return candidate;
}

/// Returns a copy of the first preset with a topk, in which the topk is replaced by the bound on the errors of blocks
/// that should compute about as many blocks. The caller measures this candidate early: how many blocks a bound computes
/// depends on the size of the video, so until one bound is measured, all bounds may look slow.
std::optional<Candidate> bounded_twin(const std::vector<Candidate>& presets, const std::vector<double>& bounds) {
  const auto preset = std::ranges::find_if(presets, [](const Candidate& each) { return each.topk.has_value(); });
  if (preset == presets.end() || bounds.empty()) return {};
  Candidate twin = *preset;
  twin.topk.reset();
  const auto off = [&](double bound) {
    twin.block_error = bound;
    return std::abs(std::log(usual_share(twin) / *preset->topk));
  };
  twin.block_error = std::ranges::min(bounds, {}, off);
  return twin;
}

}  // namespace

Standing Found::chosen() const {
  Standing chosen = setting();
  if (!heads) return chosen;
  chosen.videos = head_videos;
  chosen.computed_steps = chosen.mean(&Seen::computed_steps);
  chosen.seconds = head_seconds;
  return chosen;
}

double Session::full_seconds(const bench::StepTimes& times) const {
  const auto cost = cost_of(videos_.combination_of({.mode = attention::Mode::full}), times);
  if (!cost)
    throw bad_input("--times has no step of full attention", "add the mode full to that run of 'bench pipeline'");
  return cost->own * static_cast<double>(context_.untuned.num_inference_steps) / 1000;
}

void Session::make(SettingSearch& search, size_t candidate, size_t prompt) {
  const Candidate& made = search.standings()[candidate].candidate;
  Videos& videos = context_.own.state.videos[name(made)];
  if (!videos.contains(prompt)) {
    const Seen seen = videos_.compare(made, prompt);
    videos[prompt] = seen;
    context_.save();
  }
  search.report(candidate, prompt, videos.at(prompt));
}

/// Adds the candidates with these weights to the search, and searches.
void Session::search_with(const std::string& weights, const bench::StepTimes& times, SettingSearch& search) {
  const Costs costs = [&](const Candidate& candidate) { return cost_of(videos_.combination_of(candidate), times); };
  std::vector<Candidate> presets;
  for (const Preset& preset : context_.plan.presets)
    if (preset.candidate.weights == weights) presets.push_back(preset.candidate);
  if (const auto twin = bounded_twin(presets, context_.plan.axes.block_errors)) presets.push_back(*twin);
  search.add(presets, costs, /*first=*/true);
  Axes axes = context_.plan.axes;
  axes.weights = {weights};
  std::erase_if(axes.caches, [&](const models::CacheRule& cache) {
    models::Request request = context_.plan.request;
    request.cache = cache;
    return cache.on() && !models::why_cache_has_no_effect(request, context_.pipelines.at(weights)->spec()).empty();
  });
  if (axes.caches.empty()) axes.caches = {{}};
  search.add(candidates_of(axes, context_.untuned.num_inference_steps), costs);
  while (const auto next = search.wanted()) make(search, next->candidate, next->prompt);
}

/// Makes the presets' videos, so that the table can compare the result with them.
void Session::compare_presets(SettingSearch& search) {
  for (const Preset& preset : context_.plan.presets) {
    const auto known = search.find(preset.candidate);
    for (size_t prompt = 0; known && prompt < context_.plan.prompts.size(); ++prompt)
      if (!search.standings()[*known].videos.contains(prompt)) make(search, *known, prompt);
  }
}

void Session::search_setting(Found& found) {
  found.ended_before = "all videos of full attention were made";
  videos_.make_references();
  found.ended_before = "all promising settings were compared";
  std::vector<std::optional<double>> topks =
      context_.plan.axes.topks.empty() ? usual_topks() : context_.plan.axes.topks;
  for (const Preset& preset : context_.plan.presets)
    if (preset.candidate.topk && std::ranges::find(topks, preset.candidate.topk) == topks.end())
      topks.push_back(preset.candidate.topk);
  for (const std::string& weights : context_.plan.axes.weights) {
    if (!context_.plan.times) videos_.time_steps("auto", topks);
    if (!context_.plan.times && weights != "auto") videos_.time_steps(weights, topks);
    const bench::StepTimes times = context_.plan.times ? *context_.plan.times : videos_.times();
    if (!found.search) {
      found.full_seconds = full_seconds(times);
      found.search.emplace(context_.plan.goal, context_.plan.prompts.size(), context_.untuned.num_inference_steps,
                           found.full_seconds);
    }
    search_with(weights, times, *found.search);
  }
  if (found.search->standings().empty())
    throw bad_input("no setting has a time, because --times has no step of any of them",
                    "give --times a report of 'bench pipeline' with the modes "
                    "full,quantized,sparse and several --topk");
  compare_presets(*found.search);
}

/// Returns the seconds of denoising a video with the heads' policies, which speed up only the steps that drop blocks.
double Session::seconds_by_heads(const Candidate& candidate, const HeadState& heads) const {
  const Standing standing{.candidate = candidate, .videos = heads.videos};
  const double computed = standing.mean(&Seen::computed_steps), dense = standing.mean(&Seen::computed_dense_steps);
  const StepCost cost = cost_of(videos_.combination_of(candidate), videos_.times()).value();
  const double reused = static_cast<double>(context_.untuned.num_inference_steps) - computed;
  return (dense * cost.every_block + ((computed - dense) * cost.own + reused * cost.reused) / heads.speedup) / 1000;
}

bool Session::gain_by_heads(const Candidate& candidate, const HeadPhase& phase, Found& found) {
  HeadState& state = context_.own.state.heads;
  const auto samples = static_cast<int64_t>(state.sampled.size());
  if (state.compared_samples != samples) {  // more samples were measured since, so the choices may differ
    state.compared_samples = samples;
    state.videos.clear();
    state.speedup = 0;
  }
  const FoundHeads heads = phase.found();
  const attention::Policy policy = phase.policy_of(heads);
  found.no_heads = "within the bounds, heads leave out no more blocks";
  if (heads.work > (1 - kLeastGain) * heads.untuned_work) return false;
  if (state.speedup == 0) {
    state.speedup = videos_.speedup_of(candidate, policy);
    context_.save();
  }
  found.no_heads = "steps with blocks for each head are no faster";
  if (state.speedup < 1 + kLeastGain) return false;
  for (size_t prompt = 0; prompt < context_.plan.prompts.size(); ++prompt) {
    if (state.videos.contains(prompt)) continue;
    state.videos[prompt] = videos_.compare(candidate, prompt, &policy);
    context_.save();
  }
  Found with = found;
  with.heads = heads;
  with.head_videos = state.videos;
  with.speedup = state.speedup;
  with.head_seconds = seconds_by_heads(candidate, state);
  const bool nearer = context_.plan.goal.at_most && with.chosen().mean(&Seen::psnr) < found.setting().mean(&Seen::psnr);
  found.no_heads = "videos with blocks for each head miss the goal";
  if (!with.passed() || nearer) return false;
  found = std::move(with);
  found.no_heads.clear();
  return true;
}

void Session::search_heads(Found& found) {
  const std::string weights = context_.pipelines.begin()->first;
  if (found.search && !found.passed())
    found.no_heads = "no setting reaches the goal";
  else if (found.search && !found.setting().candidate.sparse())
    found.no_heads = "every block is computed";
  else if (found.search && found.setting().candidate.block_error)
    found.no_heads = "one bound on the errors of all blocks already gives each head its own";
  else if (context_.plan.times)
    found.no_heads = "--times holds no times of heads";
  if (!found.no_heads.empty()) return;
  found.ended_before = "all heads were measured";
  const Candidate candidate = found.search ? found.setting().candidate : blocks_of(context_.untuned, weights);
  HeadPhase phase(context_, candidate, videos_);
  try {
    found.complete = phase.measure();
  } catch (const OutOfTime&) {
    if (context_.own.state.least_calls() == 0) throw;
    found.complete = false;
  }
  if (found.search) {
    if (found.complete) found.ended_before = "the heads' videos were compared";
    gain_by_heads(candidate, phase, found);
    return;
  }
  found.heads = phase.found();
}

Found Session::run() {
  Found found;
  try {
    found.ended_before = "the prompts were encoded";
    videos_.encode_prompts();
    if (context_.plan.videos > 0) search_setting(found);
    if (found.search) found.best = found.search->best();
    search_heads(found);
  } catch (const OutOfTime&) {
    found.complete = false;
    if (!found.heads) found.no_heads = "the budget ended before " + found.ended_before;
    if (found.search) found.best = found.search->best();
    if (!found.best)
      throw run_failure(
          "--budget " + context_.plan.budget + " ended before " + found.ended_before,
          "give a larger --budget, fewer --steps or a smaller --size; run the same command again to continue");
  }
  return found;
}

}  // namespace sparsereel::app::tuning
