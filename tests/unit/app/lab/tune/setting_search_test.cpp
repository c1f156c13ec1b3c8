// Tests the search for a setting on made-up models whose fidelity and times are known: the setting that it finds, and
// the number of videos that it makes.
#include "app/lab/tune/setting_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace sparsereel::app::tuning {
namespace {

using attention::Mode;
using ::testing::Le;

constexpr int64_t kSteps = 50;
constexpr size_t kPrompts = 3;
constexpr double kFullSeconds = 50;

/// A made-up model. Its errors follow a formula with other factors and powers than the formula that the search expects.
/// Each candidate also deviates from the formula at random, and prompts differ.
struct Truth {
  double of_topk = 2e-5, of_cache = 1e-5, power = 3, of_fp8 = 1e-4, of_int8 = 1.5e-5, scatter = 0.7;
  double topk_power = 1.2;
  double of_bounds = 0.5;    // error of blocks that an error bound drops, relative to blocks that a topk drops
  double more_blocks = 1.3;  // blocks that a bound keeps, as a multiple of the expected number

  Seen video(const Candidate& candidate, size_t prompt) const {
    const double share = candidate.block_error ? std::min(1.0, more_blocks * usual_share(candidate)) : 1;
    const Traits traits = traits_of(candidate, kSteps, candidate.block_error ? std::optional(share) : std::nullopt);
    double noise = traits.quantized ? 1e-5 : 1e-9;
    noise += (traits.bounded ? of_bounds : 1) * of_topk * (std::pow(traits.topk, -topk_power) - 1) *
             std::exp(-2.5 * traits.dense);
    if (traits.threshold > 0) noise += of_cache * std::pow(traits.threshold / 0.1, power) * std::exp(-3 * traits.first);
    if (traits.fp8) noise += of_fp8;
    if (traits.int8) noise += of_int8;
    // A bound that keeps every block makes the same video as quantized attention, so both must get the same random
    // error.
    Candidate run = candidate;
    if (share >= 1 && candidate.block_error)
      run = {.mode = Mode::quantized, .cache = candidate.cache, .weights = candidate.weights};
    std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name(run)) + prompt));
    const double own = std::normal_distribution<double>(0, scatter)(random);
    const double psnr = -10 * std::log10(noise) + own + 3 * (static_cast<double>(prompt) - 1);
    const double late = traits.threshold > 0 ? 0.4 * std::pow(traits.threshold / 0.1, -0.8) : 1;
    const double computed = std::round(kSteps * (traits.first + (1 - traits.first) * std::min(1.0, late)));
    const double dense = std::min(computed, std::round(kSteps * traits.dense));
    return {.psnr = psnr,
            .ssim = 1 - std::pow(10, -psnr / 20),
            .computed_steps = computed,
            .computed_dense_steps = dense,
            .share = share};
  }

  Standing standing(const Candidate& candidate) const {
    Standing all{candidate};
    for (size_t prompt = 0; prompt < kPrompts; ++prompt) all.videos[prompt] = video(candidate, prompt);
    const StepCost cost = cost_of(candidate)->at(all.mean(&Seen::share));
    const double computed = all.mean(&Seen::computed_steps), dense = all.mean(&Seen::computed_dense_steps);
    all.seconds = (dense * cost.every_block + (computed - dense) * cost.own + (kSteps - computed) * cost.reused) / 1000;
    return all;
  }

  static std::optional<StepCost> cost_of(const Candidate& candidate) {
    const double weights = candidate.weights == "auto" ? 1 : candidate.weights == "int8" ? 0.95 : 0.9;
    StepCost cost{.every_block = 650 * weights, .reused = 30};
    cost.own = weights * (candidate.mode == Mode::full ? 1000 : 450 + 300 * candidate.topk.value_or(2.0 / 3));
    if (candidate.block_error) cost.by_share = {.points = {{0.1, 480 * weights}, {0.7, 660 * weights}}, .layers = 20};
    return cost;
  }
};

Axes axes() {
  return axes_of(Settings());
}

struct Result {
  SettingSearch search;
  int videos = 0;
};

Result searched(const Truth& truth, const Goal& goal, const std::vector<Candidate>& candidates) {
  Result result{SettingSearch(goal, kPrompts, kSteps, kFullSeconds)};
  result.search.add(candidates, Truth::cost_of);
  while (const auto next = result.search.wanted()) {
    result.search.report(next->candidate, next->prompt,
                         truth.video(result.search.standings()[next->candidate].candidate, next->prompt));
    ++result.videos;
    if (result.videos > 1000) break;
  }
  return result;
}

/// Returns the fewest seconds of all candidates whose mean PSNR is at least `min_psnr`.
double least_seconds(const Truth& truth, double min_psnr, const std::vector<Candidate>& candidates) {
  double least = kFullSeconds;
  for (const Candidate& candidate : candidates) {
    const Standing standing = truth.standing(candidate);
    if (standing.mean(&Seen::psnr) >= min_psnr) least = std::min(least, standing.seconds);
  }
  return least;
}

TEST(SettingSearch, FindsNearlyTheFastestSettingAboveTheFloorWithFewVideos) {
  const std::vector<Candidate> candidates = candidates_of(axes(), kSteps);
  EXPECT_GT(candidates.size(), 1000U);
  for (const Truth& truth :
       {Truth{}, Truth{.of_topk = 1e-4}, Truth{.of_cache = 5e-5, .power = 2}, Truth{.topk_power = 2}}) {
    for (const double floor : {35.0, 40.0, 43.0}) {
      const auto [search, videos] = searched(truth, {.min_psnr = floor}, candidates);
      ASSERT_TRUE(search.best()) << floor;
      const Standing& best = search.standings()[*search.best()];
      EXPECT_TRUE(search.holds(best)) << floor;
      EXPECT_GE(best.mean(&Seen::psnr), floor);
      // The best of thousands of candidates is best partly by chance. The search learns how a candidate deviates from
      // the formula only when it makes videos with it. So its result may take up to 10% longer than the best one.
      EXPECT_LE(best.seconds, 1.1 * least_seconds(truth, floor, candidates)) << floor << " " << name(best.candidate);
      EXPECT_LE(videos, 110) << "of " << candidates.size() * kPrompts;
    }
  }
}

TEST(SettingSearch, ChoosesAnErrorBoundOnlyIfItIsFasterThanATopk) {
  Settings settings;
  settings.add(Source::command_line, {{"cache", "0"}, {"weights", "auto"}, {"dense_steps", "20%"}});
  for (const double of_bounds : {0.3, 3.0}) {
    const auto [search, videos] =
        searched({.scatter = 0.1, .of_bounds = of_bounds}, {.min_psnr = 41}, candidates_of(axes_of(settings), kSteps));
    const Standing& best = search.standings()[search.best().value()];
    EXPECT_TRUE(search.holds(best));
    EXPECT_EQ(best.candidate.block_error.has_value(), of_bounds < 1) << name(best.candidate);
    if (best.candidate.block_error) {
      EXPECT_NEAR(best.share, std::min(1.0, 1.3 * usual_share(best.candidate)), 1e-9) << "as seen";
    }
  }
}

TEST(SettingSearch, FindsTheMostFaithfulSettingWithinTheSeconds) {
  const std::vector<Candidate> candidates = candidates_of(axes(), kSteps);
  const Truth truth;
  const auto [search, videos] = searched(truth, {.at_most = 8}, candidates);
  const Standing& best = search.standings()[search.best().value()];
  EXPECT_TRUE(search.holds(best));
  EXPECT_LE(best.seconds, 8);
  double nearest = 0;
  for (const Candidate& candidate : candidates)
    if (const Standing all = truth.standing(candidate); all.seconds <= 8)
      nearest = std::max(nearest, all.mean(&Seen::psnr));
  EXPECT_GE(best.mean(&Seen::psnr), nearest - 1);
  EXPECT_LE(videos, 100);
}

TEST(SettingSearch, KeepsAFloorOfSsim) {
  const std::vector<Candidate> candidates = candidates_of(axes(), kSteps);
  const auto [search, videos] = searched({}, {.min_ssim = 0.99}, candidates);
  const Standing& best = search.standings()[search.best().value()];
  EXPECT_TRUE(search.holds(best));
  EXPECT_GE(best.mean(&Seen::ssim), 0.99);
  EXPECT_LT(best.seconds, 0.4 * kFullSeconds);
}

TEST(SettingSearch, KeepsASeparateFloorForTheWorstPrompt) {
  const std::vector<Candidate> candidates = candidates_of(axes(), kSteps);
  const auto mean = searched({}, {.min_psnr = 38}, candidates).search;
  const auto both = searched({}, {.min_psnr = 38, .min_tail = 38}, candidates).search;
  const Standing &one = mean.standings()[mean.best().value()], &other = both.standings()[both.best().value()];
  EXPECT_LT(one.lowest_psnr(), 38);
  EXPECT_GE(other.lowest_psnr(), 38);
  EXPECT_GT(other.seconds, one.seconds);
}

TEST(SettingSearch, KeepsAFloorOfAPercentile) {
  const std::vector<Candidate> candidates = candidates_of(axes(), kSteps);
  const auto best_of = [&](double tail) {
    const auto search = searched({}, {.min_tail = 38, .tail = tail}, candidates).search;
    return search.standings()[search.best().value()];
  };
  const Standing worst = best_of(0), quarter = best_of(25), median = best_of(50);
  EXPECT_GE(worst.lowest_psnr(), 38);
  EXPECT_LT(quarter.lowest_psnr(), 38);
  EXPECT_GE(quarter.psnr_percentile(25), 38);
  EXPECT_LT(median.psnr_percentile(25), 38);
  EXPECT_GE(median.psnr_percentile(50), 38);
  EXPECT_GT(worst.seconds, quarter.seconds);
  EXPECT_GT(quarter.seconds, median.seconds);
}

TEST(SettingSearch, IsAsSureOfAPercentileAsTheNumberOfPromptsAllows) {
  EXPECT_NEAR(sureness(58, 0, 0.05), 0.949, 5e-4);
  EXPECT_NEAR(sureness(59, 0, 0.05), 0.9515, 5e-4);
  EXPECT_NEAR(sureness(4, 0, 0.05), 1 - std::pow(0.95, 4), 1e-12);
  // One of 93 prompts below the limit; from a table of tolerance limits.
  EXPECT_NEAR(sureness(93, 1, 0.05), 0.95, 2e-3);
  EXPECT_NEAR(sureness(10, 10, 0.05), 0, 1e-12);
}

TEST(SettingSearch, SoonNamesTheMostFaithfulSettingIfNoneReachesTheFloor) {
  const auto [search, videos] = searched({}, {.min_psnr = 90}, candidates_of(axes(), kSteps));
  const Standing& best = search.standings()[search.best().value()];
  EXPECT_FALSE(search.holds(best));
  EXPECT_TRUE(search.complete(best));
  EXPECT_EQ(best.candidate.mode, Mode::full) << "with the most careful of the caches";
  EXPECT_LE(videos, 40);
}

TEST(SettingSearch, NamesTheFastestSettingIfNoneKeepsTheLimit) {
  const auto [search, videos] = searched({}, {.at_most = 0.5}, candidates_of(axes(), kSteps));
  ASSERT_TRUE(search.best());
  const Standing& best = search.standings()[*search.best()];
  EXPECT_FALSE(search.holds(best));
  EXPECT_TRUE(search.complete(best)) << "so that it is known what the fastest takes";
  EXPECT_LE(videos, 30);
}

TEST(SettingSearch, TriesPreferredCandidatesFirstAndSkipsVideosOfAnEarlierRun) {
  const std::vector<Candidate> candidates = candidates_of(axes(), kSteps);
  const Candidate preset{.topk = 0.5, .dense = {.percent = 20}, .cache = models::parse_cache_rule("forecast:0.15:20%")};
  SettingSearch search({.min_psnr = 40}, kPrompts, kSteps, kFullSeconds);
  search.add({preset}, Truth::cost_of, /*first=*/true);
  search.add(candidates, Truth::cost_of);
  EXPECT_EQ(search.standings().size(), candidates.size()) << "a preset of the grid is none twice";
  const auto first = search.wanted();
  ASSERT_TRUE(first);
  EXPECT_EQ(search.standings()[first->candidate].candidate, preset);
  search.report(first->candidate, first->prompt, Truth().video(preset, first->prompt));
  EXPECT_FALSE(search.wanted()->candidate == first->candidate && search.wanted()->prompt == 0);
}

TEST(SettingSearch, CountsTheStepsThatARuleFixes) {
  SettingSearch search({.min_psnr = 40}, kPrompts, kSteps, kFullSeconds);
  std::vector<Candidate> candidates;
  for (const char* rule : {"steps:2", "forecast:0.1:98%:1", "forecast:0.1"})
    candidates.push_back({.topk = 0.5, .dense = {.percent = 20}, .cache = models::parse_cache_rule(rule)});
  search.add(candidates, Truth::cost_of);
  const std::vector<Standing>& all = search.standings();
  EXPECT_EQ(all[0].computed_steps, 2);
  const StepCost cost = *Truth::cost_of(candidates[0]);
  EXPECT_DOUBLE_EQ(all[0].seconds, (cost.every_block + cost.own + 48 * cost.reused) / 1000) << "one of them is dense";
  EXPECT_EQ(all[1].computed_steps, kSteps);
  EXPECT_GT(all[2].computed_steps, 1);
  EXPECT_LT(all[2].computed_steps, kSteps);
}

TEST(SettingSearch, LeavesOutCandidatesWithoutATime) {
  SettingSearch search({.min_psnr = 40}, kPrompts, kSteps, kFullSeconds);
  search.add(candidates_of(axes(), kSteps), [](const Candidate& candidate) {
    return candidate.topk == 0.3 ? Truth::cost_of(candidate) : std::nullopt;
  });
  for (const Standing& standing : search.standings()) EXPECT_EQ(standing.candidate.topk, 0.3);
  EXPECT_FALSE(search.standings().empty());
}

TEST(Candidates, KeepGivenValuesAndVaryTheOthers) {
  Settings settings;
  settings.add(Source::command_line, {{"topk", "0.25"}, {"cache", "steps:20"}, {"weights", "auto"}});
  const std::vector<Candidate> candidates = candidates_of(axes_of(settings), kSteps);
  for (const Candidate& candidate : candidates) {
    EXPECT_EQ(candidate.options().at("cache"), "steps:20");
    if (candidate.sparse()) {
      EXPECT_EQ(candidate.options().at("topk"), "0.25");
    }
  }
  EXPECT_EQ(candidates.size(), 2U + 4U) << "full, quantized, and as many as there are dense steps";
}

TEST(Candidates, ChooseBlocksByATopkOrABoundUnlessOneIsGiven) {
  const auto axes_with = [](const std::map<std::string, std::string>& given) {
    Settings settings;
    settings.add(Source::command_line, given);
    return axes_of(settings);
  };
  EXPECT_FALSE(axes().topks.empty());
  EXPECT_FALSE(axes().block_errors.empty());
  for (const auto& given : std::vector<std::map<std::string, std::string>>{
           {{"topk", "0.3"}}, {{"cdf", "0.9"}}, {{"error", "0.1"}}, {{"select", "mass"}}, {{"dropped", "none"}}})
    EXPECT_TRUE(axes_with(given).block_errors.empty()) << given.begin()->first;
  EXPECT_THAT(axes_with({{"cdf", "0.9"}}).topks, ::testing::ElementsAre(std::nullopt));
  const Axes bounded = axes_with({{"block_error", "0.01"}, {"cache", "0"}, {"weights", "auto"}});
  for (const Candidate& candidate : candidates_of(bounded, kSteps))
    EXPECT_EQ(candidate.options().contains("block_error"), candidate.sparse());
  EXPECT_TRUE(bounded.topks.empty());
}

TEST(Candidates, ContainNoDuplicatesWithFewSteps) {
  Settings settings;
  settings.add(Source::command_line, {{"cache", "0"}, {"topk", "0.3"}, {"weights", "auto"}});
  Axes few = axes_of(settings);
  EXPECT_THAT(candidates_of(few, 2).size(), Le(3U));  // quantized, and sparse with no dense step or one
  const auto with_caches = [&](const std::vector<std::string>& rules) {
    few.caches.clear();
    for (const std::string& rule : rules) few.caches.push_back(models::parse_cache_rule(rule));
    return candidates_of(few, kSteps).size();
  };
  EXPECT_EQ(with_caches({"forecast:0.1:0:1", "forecast:0.1:0:1%"}), with_caches({"forecast:0.1:0:1"}));
  EXPECT_GT(with_caches({"forecast:0.1", "forecast:0.1:0:1"}), with_caches({"forecast:0.1"}));
}

}  // namespace
}  // namespace sparsereel::app::tuning
