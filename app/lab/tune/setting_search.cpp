// Searches by expected improvement. The expected improvement of a setting is the time that it saves, times the
// probability that its videos reach the floor, which is the least fidelity that the goal allows. The next video is made
// with the setting of the largest expected improvement.
#include "app/lab/tune/setting_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/lab/measure/timing.h"

namespace sparsereel::app::tuning {
namespace {

/// The least expected gain for which videos of a candidate are made: a share of the best candidate's seconds or, if the
/// goal limits the seconds, decibels.
constexpr double kLeastShare = 0.005, kLeastDecibels = 0.1;
/// The PSNR above which no difference is visible. Higher values count as this one, because the noise model cannot
/// explain them: if a cache happens to reuse no step, the videos can be equal, which counts as 100 dB (kEqualPsnr).
constexpr double kMostDecibels = 60;
/// The floor in dB if the goal bounds no PSNR: the level of PSNR for which the noise model was made.
constexpr double kUsualDecibels = 40;

double normal(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

/// The share of steps that a forecast cache computes, in the first fifth of a run (`early`) and after it (`late`). It
/// was measured with the tiny model at 512 x 512 and 50 steps (assets/charts). With fewer steps, each step changes
/// more, so a larger share is computed.
struct Density {
  Density(double threshold, double steps) {
    const double of_few = std::pow(50 / steps, 0.8);
    early = std::min(1.0, 0.8 * std::pow(threshold / 0.1, -0.45) * of_few);
    late = std::min(1.0, 0.31 * std::pow(threshold / 0.1, -0.95) * of_few);
  }
  /// `position` is 0 at the start of the run and 1 at its end.
  double at(double position) const { return position < 0.2 ? early : late; }

  double early, late;
};

double distance(const models::CacheRule& one, const models::CacheRule& other, int64_t steps) {
  const auto share = [&](const models::CacheRule& rule) {
    return static_cast<double>(rule.certain_steps(steps)) / static_cast<double>(steps);
  };
  return std::abs(std::log(one.threshold / other.threshold)) + 3 * std::abs(share(one) - share(other));
}

}  // namespace

double Standing::mean(double Seen::*figure) const {
  double sum = 0;
  for (const auto& [prompt, seen] : videos) sum += seen.*figure;
  return videos.empty() ? 0 : sum / static_cast<double>(videos.size());
}

double Standing::psnr_percentile(double percentile) const {
  std::vector<double> figures;
  for (const auto& [prompt, seen] : videos) figures.push_back(seen.psnr);
  return figures.empty() ? std::numeric_limits<double>::infinity() : quantile(figures, percentile / 100);
}

double sureness(int64_t prompts, int64_t below, double share) {
  double probability = std::pow(1 - share, static_cast<double>(prompts)), so_few = 0;
  for (int64_t i = 0; i <= std::min(below, prompts); ++i) {
    so_few += probability;
    probability *= static_cast<double>(prompts - i) / static_cast<double>(i + 1) * share / (1 - share);
  }
  return std::max(0.0, 1 - so_few);
}

StepCost StepCost::at(double share) const {
  if (by_share.points.empty()) return {.own = own, .every_block = every_block, .reused = reused};
  const double ms = by_share.ms(share);
  return {.own = ms, .every_block = every_block, .reused = ms / static_cast<double>(by_share.layers)};
}

SettingSearch::SettingSearch(const Goal& goal, size_t prompts, int64_t steps, double full_seconds)
    : goal_(goal), prompts_(prompts), steps_(steps), full_seconds_(full_seconds), model_(prompts) {}

void SettingSearch::add(const std::vector<Candidate>& candidates, const Costs& costs, bool first) {
  for (const Candidate& candidate : candidates) {
    std::optional<size_t> known = find(candidate);
    if (!known) {
      const std::optional<StepCost> cost = costs(candidate);
      if (!cost) continue;
      known = standings_.size();
      standings_.push_back({candidate});
      costs_.push_back(*cost);
    }
    if (first) first_.push_back(*known);
  }
  update();
}

std::optional<size_t> SettingSearch::find(const Candidate& candidate) const {
  const auto found = std::ranges::find(standings_, candidate, &Standing::candidate);
  if (found == standings_.end()) return {};
  return static_cast<size_t>(found - standings_.begin());
}

void SettingSearch::report(size_t candidate, size_t prompt, const Seen& seen) {
  standings_.at(candidate).videos[prompt] = seen;
  seen_.insert(candidate);
  update();
}

/// Returns the figure in dB that must reach the floor; at most kMostDecibels. If the goal does not bound SSIM, it is
/// the PSNR. If the goal bounds only SSIM, it is the floor plus the distance (in dB of 1 - SSIM) of the SSIM from its
/// bound. Otherwise it is the smaller of the two.
double SettingSearch::figure_of(const Seen& seen) const {
  double figure = seen.psnr;
  if (goal_.min_ssim) {
    const double margin = 10 * std::log10((1 - *goal_.min_ssim + 1e-9) / std::max(1e-9, 1 - seen.ssim));
    figure = goal_.min_psnr || goal_.min_tail ? std::min(figure, floor() + margin) : floor() + margin;
  }
  return std::min(figure, kMostDecibels);
}

double SettingSearch::floor() const {
  return std::min(goal_.min_psnr.value_or(goal_.min_tail.value_or(kUsualDecibels)), kMostDecibels);
}

bool SettingSearch::has_time(const Standing& standing) const {
  return !goal_.at_most || standing.seconds <= *goal_.at_most;
}

bool SettingSearch::holds(const Standing& standing) const {
  if (!complete(standing) || !has_time(standing) || standing.seconds >= full_seconds_) return false;
  return standing.mean(&Seen::psnr) >= goal_.min_psnr.value_or(0) &&
         standing.mean(&Seen::ssim) >= goal_.min_ssim.value_or(-1) &&
         standing.psnr_percentile(goal_.tail) >= goal_.min_tail.value_or(0);
}

/// Estimates how many steps are computed in the first part of a run, for a candidate that has no video yet. `share`,
/// from 0 to 1, is the size of that part.
double SettingSearch::steps_by(const Candidate& candidate, double share) const {
  const auto steps = static_cast<double>(steps_);
  const models::CacheRule& cache = candidate.cache;
  if (!cache.on()) return share * steps;
  const Density density(cache.threshold, steps);
  double sum = 0;
  for (int64_t step = 0; step < steps_; ++step) {
    const double at = (static_cast<double>(step) + 0.5) / steps;
    if (at >= share) break;
    const std::optional<bool> reused = cache.reuses(step, steps_);
    sum += !reused ? density.at(at) : *reused ? 0 : 1;
  }
  return sum;
}

/// Returns a factor that corrects steps_by(): the measured number of computed steps, divided by the estimate of
/// steps_by(), for the measured candidate with the closest cache rule. The steps that the rule always computes do not
/// count.
double SettingSearch::correction(const Candidate& candidate) const {
  const models::CacheRule& cache = candidate.cache;
  if (!cache.on() || cache.kind == models::CacheKind::steps) return 1;
  const Standing* nearest = nullptr;
  for (const size_t index : seen_) {
    const Standing& each = standings_[index];
    if (!each.candidate.cache.on() || each.candidate.cache.kind != cache.kind) continue;
    if (nearest == nullptr ||
        distance(each.candidate.cache, cache, steps_) < distance(nearest->candidate.cache, cache, steps_))
      nearest = &each;
  }
  if (nearest == nullptr) return 1;
  const auto forced = static_cast<double>(nearest->candidate.cache.certain_steps(steps_));
  const double expected = steps_by(nearest->candidate, 1) - forced;
  return expected > 0.5 ? std::max(0.1, (nearest->mean(&Seen::computed_steps) - forced) / expected) : 1;
}

/// Estimates the share of computed blocks, for a candidate that has no video yet. If videos with another bound on the
/// errors of blocks were measured, the estimate is multiplied by the ratio of the measured to the estimated share for
/// the closest such bound.
double SettingSearch::share_by(const Candidate& candidate) const {
  const double usual = usual_share(candidate);
  const auto distance_of = [&](const Standing& standing) {
    return std::abs(std::log(*standing.candidate.block_error / *candidate.block_error));
  };
  const Standing* nearest = nullptr;
  for (const size_t index : seen_) {
    const Standing& each = standings_[index];
    if (!each.candidate.block_error || !candidate.block_error) continue;
    if (each.mean(&Seen::computed_steps) <= each.mean(&Seen::computed_dense_steps))
      continue;  // no step of its videos used the bound
    if (nearest == nullptr || distance_of(each) < distance_of(*nearest)) nearest = &each;
  }
  return std::min(1.0,
                  nearest == nullptr ? usual : usual * nearest->mean(&Seen::share) / usual_share(nearest->candidate));
}

void SettingSearch::update_times(Standing& standing) const {
  const Candidate& candidate = standing.candidate;
  const auto steps = static_cast<double>(steps_);
  double computed = standing.mean(&Seen::computed_steps), dense = standing.mean(&Seen::computed_dense_steps);
  if (standing.videos.empty()) {
    const double factor = correction(candidate);
    const auto forced = static_cast<double>(candidate.cache.on() ? candidate.cache.certain_steps(steps_) : steps_);
    const auto corrected = [&](double all, double most) {
      const double certain = std::min({forced, most, all});
      return std::min(most, certain + (all - certain) * factor);
    };
    computed = std::max(1.0, corrected(steps_by(candidate, 1), steps));
    const auto wanted = candidate.sparse() ? static_cast<double>(candidate.dense.of(steps_)) : 0;
    dense = std::min({wanted, computed, corrected(steps_by(candidate, wanted / steps), wanted)});
  }
  standing.share = standing.videos.empty() ? share_by(candidate) : standing.mean(&Seen::share);
  const StepCost cost = costs_[static_cast<size_t>(&standing - standings_.data())].at(standing.share);
  standing.computed_steps = computed;
  standing.seconds =
      (dense * cost.every_block + (computed - dense) * cost.own + (steps - computed) * cost.reused) / 1000;
}

/// Sets the guess of the mean PSNR: combines the measured figures with the noise model's guesses for the other prompts.
/// The guesses are shifted by the model's error on the measured prompts.
void SettingSearch::guess(Standing& standing) const {
  const auto all = static_cast<double>(prompts_), seen = static_cast<double>(standing.videos.size());
  const Guess model = model_.guess(traits(standing));
  double sum = 0, off = 0;
  for (const auto& [prompt, video] : standing.videos) {
    sum += figure_of(video);
    off += figure_of(video) - model.mean - model_.ease(prompt);
  }
  const double own = kOfCandidates * kOfCandidates, of_video = kOfVideos * kOfVideos;
  const double trust = seen * own / (seen * own + of_video);
  const double moved = seen > 0 ? trust * off / seen : 0;
  for (size_t prompt = 0; prompt < prompts_; ++prompt)
    if (!standing.videos.contains(prompt)) sum += model.mean + model_.ease(prompt) + moved;
  const double left = all - seen;
  const double variance = (model.deviation * model.deviation + own) * (1 - trust) + (left > 0 ? of_video / left : 0);
  standing.psnr = {.mean = sum / all, .deviation = left / all * std::sqrt(variance)};
}

/// Returns the traits for the noise model. If the candidate bounds the errors of blocks, its share of blocks is the
/// measured or estimated one of the search. Otherwise the share is its topk.
Traits SettingSearch::traits(const Standing& standing) const {
  const bool bounded = standing.candidate.block_error.has_value();
  return traits_of(standing.candidate, steps_, bounded ? std::optional(standing.share) : std::nullopt);
}

void SettingSearch::update() {
  for (Standing& standing : standings_) update_times(standing);
  std::vector<Decibels> measured;
  for (const Standing& standing : standings_)
    for (const auto& [prompt, seen] : standing.videos) measured.push_back({traits(standing), prompt, figure_of(seen)});
  model_.fit(measured);
  for (Standing& standing : standings_) guess(standing);
}

/// Returns the probability that the candidate's videos reach the floor.
double SettingSearch::chance(const Standing& standing) const {
  if (complete(standing)) return holds(standing) ? 1 : 0;
  if (!goal_.has_floor()) return 1;
  double chance = 1;
  if (goal_.min_psnr || goal_.min_ssim)
    chance = normal((standing.psnr.mean - floor()) / std::max(1e-6, standing.psnr.deviation));
  return goal_.min_tail ? chance * tail_chance(standing) : chance;
}

/// Returns the probability that the goal's percentile of the PSNR reaches its bound. Guesses the PSNR of the missing
/// videos. A video that reaches the bound counts as kMostDecibels, because how far it lies above the bound does not
/// matter.
double SettingSearch::tail_chance(const Standing& standing) const {
  const double bound = *goal_.min_tail, share = goal_.tail / 100;
  std::vector<double> at_best, expected;
  for (size_t prompt = 0; prompt < prompts_; ++prompt) {
    const auto video = standing.videos.find(prompt);
    const bool made = video != standing.videos.end(), kept = made && video->second.psnr >= bound;
    at_best.push_back(made && !kept ? video->second.psnr : kMostDecibels);
    expected.push_back(kept ? kMostDecibels : made ? video->second.psnr : standing.psnr.mean + model_.ease(prompt));
  }
  if (quantile(at_best, share) < bound) return 0;
  return normal((quantile(expected, share) - bound) / std::hypot(standing.psnr.deviation, kOfVideos));
}

/// Returns the gain that further videos of the candidate promise, divided by the least gain that is worth a video. The
/// gain is a share of the best candidate's seconds; if the goal limits seconds, it is in decibels.
double SettingSearch::gain(const Standing& standing, const std::optional<size_t>& best) const {
  if (complete(standing) || !has_time(standing)) return 0;
  // A bound that keeps all blocks computes the same as mode quantized, so it needs no video of its own.
  const bool keeps_all = standing.candidate.block_error && standing.share >= 1;
  if (keeps_all && standing.videos.empty()) return 0;
  const bool held = best && holds(standings_[*best]);
  if (goal_.at_most) {
    const double now = held ? standings_[*best].psnr.mean : 0, spread = std::max(1e-6, standing.psnr.deviation);
    const double ahead = (standing.psnr.mean - now) / spread;
    const double density = std::exp(-ahead * ahead / 2) / std::sqrt(2 * std::acos(-1.0));
    return chance(standing) * spread * (ahead * normal(ahead) + density) / kLeastDecibels;
  }
  const double now = held ? standings_[*best].seconds : full_seconds_;
  return chance(standing) * std::max(0.0, now - standing.seconds) / now / kLeastShare;
}

size_t SettingSearch::next_prompt(const Standing& standing) const {
  size_t prompt = 0;
  while (standing.videos.contains(prompt)) ++prompt;
  return prompt;
}

std::optional<SettingSearch::Wanted> SettingSearch::wanted() const {
  for (const size_t each : first_)
    if (standings_[each].videos.empty()) return Wanted{each, 0};
  const std::optional<size_t> now = best();
  std::optional<size_t> chosen;
  double most = 1;
  for (size_t i = 0; i < standings_.size(); ++i) {
    const double promised = gain(standings_[i], now);
    if (promised <= most) continue;
    most = promised;
    chosen = i;
  }
  if (!chosen && !(now && holds(standings_[*now]))) chosen = nearest();
  if (!chosen || complete(standings_[*chosen])) return {};
  return Wanted{*chosen, next_prompt(standings_[*chosen])};
}

/// Returns the candidate that should come closest to the goal, if none reaches it.
std::optional<size_t> SettingSearch::nearest() const {
  const auto score = [&](const Standing& each) {
    return has_time(each) ? std::pair(1, each.psnr.mean) : std::pair(0, -each.seconds);
  };
  std::optional<size_t> nearest;
  for (size_t i = 0; i < standings_.size(); ++i)
    if (!nearest || score(standings_[i]) > score(standings_[*nearest])) nearest = i;
  return nearest;
}

std::optional<size_t> SettingSearch::best() const {
  const auto score = [&](const Standing& standing) {
    const bool held = holds(standing);
    if (held && !goal_.at_most) return std::pair(2, -standing.seconds);
    if (held) return std::pair(2, standing.psnr.mean);
    return has_time(standing) ? std::pair(1, standing.psnr.mean) : std::pair(0, -standing.seconds);
  };
  std::optional<size_t> best;
  for (size_t i = 0; i < standings_.size(); ++i) {
    if (standings_[i].videos.empty()) continue;
    if (!best || score(standings_[i]) > score(standings_[*best])) best = i;
  }
  return best;
}

}  // namespace sparsereel::app::tuning
