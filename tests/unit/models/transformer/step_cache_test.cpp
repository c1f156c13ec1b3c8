// Tests the rules by which the step cache reuses steps, with made-up residuals (the sums that blocks add). Also tests
// the loop that skips blocks by these rules.
#include "models/transformer/step_cache.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/request/attention_run.h"
#include "models/transformer/loaded_transformer.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/toy/toy_transformer.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CacheRule, ParsesThresholdsAndNames) {
  EXPECT_DOUBLE_EQ(parse_cache_rule("0.1").threshold, 0.1);
  EXPECT_EQ(parse_cache_rule("first-block:0.25"), parse_cache_rule("0.25"));
  EXPECT_EQ(name(parse_cache_rule("0.25")), "first-block:0.25");
  EXPECT_EQ(name(parse_cache_rule("forecast:0.12345678")), "forecast:0.12345678");
  EXPECT_EQ(name(parse_cache_rule("measured:0.2:20%:1")), "measured:0.2:20%:1");
  EXPECT_EQ(parse_cache_rule("measured:0.2"), (CacheRule{.kind = CacheKind::measured, .threshold = 0.2}));
  EXPECT_FALSE(parse_cache_rule("0").on());
  const CacheRule steps = parse_cache_rule("steps:20");
  EXPECT_EQ(steps, (CacheRule{.kind = CacheKind::steps, .steps = 20}));
  EXPECT_TRUE(steps.on());
  EXPECT_EQ(name(steps), "steps:20");
}

TEST(CacheRule, RefusesInvalidRules) {
  for (const char* text : {"",
                           "x",
                           "-0.1",
                           "inf",
                           "nan",
                           "1e999",
                           "0.1x",
                           "first-block",
                           "first-block:",
                           ":0.1",
                           "20:steps",
                           "steps",
                           "steps:",
                           "steps:0",
                           "steps:-1",
                           "steps:x",
                           "steps:1.5",
                           "steps:1e2",
                           "steps: 2",
                           "steps:99999999999999999999",
                           "steps:20:5",
                           "forecast:0.1:",
                           "forecast:0.1:x",
                           "forecast:0.1:5:",
                           "forecast:0.1:5:x",
                           "forecast:0.1:5:5:5"}) {
    try {
      parse_cache_rule(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.field(), "cache") << text;
      EXPECT_EQ(error.kind(), ErrorKind::bad_input) << text;
    }
  }
  try {
    parse_cache_rule("teacache:0.1");
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("teacache is not a kind of cache"));
    EXPECT_THAT(error.remedy(), HasSubstr("first-block"));
  }
}

std::vector<int64_t> computed_steps(const CacheRule& rule, int64_t run_steps) {
  std::vector<int64_t> computed;
  for (int64_t step = 0; step < run_steps; ++step)
    if (!rule.reuses(step, run_steps).value()) computed.push_back(step);
  return computed;
}

TEST(CacheRule, SpreadsComputedStepsEvenly) {
  const auto rule = [](int64_t steps) { return CacheRule{.kind = CacheKind::steps, .steps = steps}; };
  EXPECT_THAT(computed_steps(rule(1), 4), ElementsAre(0));
  EXPECT_THAT(computed_steps(rule(2), 50), ElementsAre(0, 49));
  EXPECT_THAT(computed_steps(rule(6), 50), ElementsAre(0, 10, 20, 29, 39, 49));
  EXPECT_THAT(computed_steps(rule(3), 6), ElementsAre(0, 3, 5));
  for (const int64_t run_steps : {1, 2, 3, 7, 25, 50}) {
    for (int64_t steps = 2; steps <= run_steps + 2; ++steps) {
      std::vector<int64_t> expected;
      for (int64_t k = 0; k < std::min(steps, run_steps); ++k)
        expected.push_back(steps < run_steps
                               ? std::lround(static_cast<double>(k * (run_steps - 1)) / static_cast<double>(steps - 1))
                               : k);
      EXPECT_EQ(computed_steps(rule(steps), run_steps), expected) << steps << " of " << run_steps;
    }
  }
  EXPECT_FALSE(parse_cache_rule("forecast:0.1").reuses(3, 50).has_value());
}

TEST(CacheRule, ComputesTheFirstStepOfEveryRunAndCountsTheCertainSteps) {
  for (const char* text : {"0.1", "forecast:0.1", "forecast:0.1:20%", "forecast:0.1:0:1", "forecast:0.1:3:4%",
                           "forecast:0.1:90%:90%", "steps:1", "steps:2", "steps:20"}) {
    const CacheRule rule = parse_cache_rule(text);
    for (const int64_t run_steps : {1, 2, 3, 25, 50}) {
      EXPECT_EQ(rule.reuses(0, run_steps), std::optional(false)) << text << " " << run_steps;
      int64_t certain = 0;
      for (int64_t step = 0; step < run_steps; ++step)
        certain += rule.reuses(step, run_steps) == std::optional(false) ? 1 : 0;
      EXPECT_EQ(rule.certain_steps(run_steps), certain) << text << " " << run_steps;
    }
  }
}

TEST(CacheRule, ComputesTheGivenFirstSteps) {
  const CacheRule rule = parse_cache_rule("forecast:0.13:20%");
  EXPECT_EQ(name(rule), "forecast:0.13:20%");
  EXPECT_DOUBLE_EQ(rule.threshold, 0.13);
  EXPECT_EQ(rule.reuses(9, 50), std::optional(false));
  EXPECT_FALSE(rule.reuses(10, 50).has_value()) << "its first block decides";
  EXPECT_EQ(parse_cache_rule("first-block:0.1:3").reuses(2, 50), std::optional(false));
  EXPECT_EQ(name(parse_cache_rule("forecast:0.1:0")), "forecast:0.1");
}

TEST(CacheRule, ComputesTheGivenLastSteps) {
  const CacheRule rule = parse_cache_rule("forecast:0.11:10%:1");
  EXPECT_EQ(name(rule), "forecast:0.11:10%:1");
  EXPECT_EQ(rule.reuses(4, 50), std::optional(false));
  EXPECT_FALSE(rule.reuses(5, 50).has_value()) << "its first block decides";
  EXPECT_FALSE(rule.reuses(48, 50).has_value());
  EXPECT_EQ(rule.reuses(49, 50), std::optional(false));
  EXPECT_EQ(name(parse_cache_rule("forecast:0.11:0:4%")), "forecast:0.11:0:4%");
  EXPECT_EQ(parse_cache_rule("forecast:0.11:0:4%").reuses(24, 25), std::optional(false)) << "a share is rounded up";
  EXPECT_FALSE(parse_cache_rule("forecast:0.11:0:4%").reuses(23, 25).has_value());
  EXPECT_EQ(name(parse_cache_rule("first-block:0.1:0:0")), "first-block:0.1");
  EXPECT_EQ(parse_cache_rule("forecast:0.1:0:9").reuses(0, 2), std::optional(false)) << "more than the run has";
}

class StepCacheTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor of(double first, double second) const {
    return at::tensor({first, second}).to(GetParam()).view({2, 1, 1});
  }
  /// Makes a step of one forward pass whose first block adds `first` and whose other blocks add `rest` (default:
  /// `first`). Returns true if the cache reuses the other blocks' result.
  bool reuses(const at::Tensor& first, const at::Tensor& rest = {}) { return reuses(first, rest, cache_); }
  static bool reuses(const at::Tensor& first, const at::Tensor& rest, StepCache& cache) {
    cache.begin_step();
    cache.decide(first);
    if (!cache.reuses())
      cache.remember(rest.defined() ? rest : first);
    else
      cache.recall();
    return cache.reuses();
  }

  StepCache cache_{{.threshold = 0.25}};
};

TEST_P(StepCacheTest, ComparesTheRelativeChangeWithTheThreshold) {
  const std::vector<std::pair<at::Tensor, bool>> cases = {{of(3, -1), true},
                                                          {of(3, -1.5), true} /* 0.5 of 4 */,
                                                          {of(3, -2), false} /* the threshold */,
                                                          {of(2, -2), false}};
  for (const auto& [next, expected] : cases) {
    cache_ = StepCache({.threshold = 0.25});
    EXPECT_FALSE(reuses(of(3, -1)));  // the first step has nothing to reuse
    EXPECT_EQ(reuses(next), expected) << next;
  }
}

TEST_P(StepCacheTest, ComparesWithTheLastComputedStep) {
  EXPECT_FALSE(reuses(of(4, 4), of(5, 6)));
  EXPECT_TRUE(reuses(of(4.5, 4.5)));
  EXPECT_FALSE(reuses(of(5, 5), of(7, 8)));  // near the last step, but far from the last computed one
  cache_.begin_step();
  cache_.decide(of(5.5, 5.5));
  ASSERT_TRUE(cache_.reuses());
  EXPECT_TRUE(cache_.recall().equal(of(7, 8)));
}

TEST_P(StepCacheTest, DecidesForTheStepInTheFirstForward) {
  cache_.begin_step();
  EXPECT_TRUE(cache_.undecided());
  cache_.decide(of(4, 4));
  for (const double rest : {1.0, 2.0}) {
    EXPECT_FALSE(cache_.reuses());
    cache_.remember(of(rest, rest));
    EXPECT_FALSE(cache_.undecided());
  }
  cache_.begin_step();
  cache_.decide(of(4, 4));
  for (const double rest : {1.0, 2.0}) {
    EXPECT_TRUE(cache_.reuses());
    EXPECT_TRUE(cache_.recall().equal(of(rest, rest)));
    EXPECT_FALSE(cache_.undecided());
  }
}

TEST_P(StepCacheTest, DoesNotReuseForNaNOrInf) {
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(reuses(of(1, 1)));
    EXPECT_FALSE(reuses(of(value, 1))) << value;
  }
  EXPECT_FALSE(reuses(of(0, 0)));
  EXPECT_FALSE(reuses(of(0, 0)));  // 0 / 0 is not below the threshold
}

TEST_P(StepCacheTest, DoesNotOverflowInFp16) {
  const at::Tensor large = at::full({1, 64, 64}, 1000).to(GetParam());
  EXPECT_FALSE(reuses(large));
  EXPECT_TRUE(reuses(large * 1.125));
  EXPECT_FALSE(reuses(large * 1.5));
}

TEST_P(StepCacheTest, ResumesFromItsState) {
  for (const CacheKind kind : {CacheKind::first_block, CacheKind::forecast, CacheKind::measured}) {
    cache_ = StepCache({.kind = kind, .threshold = 0.25});
    EXPECT_FALSE(reuses(of(2, -1), of(4, 4)));
    EXPECT_FALSE(reuses(of(3, -1), of(5, 6)));
    StepCache other({.kind = kind, .threshold = 0.25});
    other.restore(cache_.state());
    for (StepCache* each : {&cache_, &other}) {
      each->begin_step();
      each->decide(of(3.5, -1));
      ASSERT_TRUE(each->reuses());
    }
    EXPECT_TRUE(other.recall().equal(cache_.recall()));
    other.restore(StepCache({.kind = kind, .threshold = 0.25}).state());
    EXPECT_FALSE(reuses(of(3, -1), {}, other));
  }
}

TEST_P(StepCacheTest, RefusesAStateThatLacksATensor) {
  for (const CacheKind kind : {CacheKind::first_block, CacheKind::forecast, CacheKind::measured}) {
    for (const int computed : {0, 1, 2}) {
      StepCache cache({.kind = kind, .threshold = 0.25});
      for (int step = 0; step < computed; ++step) EXPECT_FALSE(reuses(of(step + 1, -1), {}, cache));
      const std::map<std::string, at::Tensor> whole = cache.state();
      const size_t tensors = computed == 0 ? 1 : computed == 2 && kind != CacheKind::first_block ? 5 : 3;
      EXPECT_EQ(whole.size(), tensors + (kind == CacheKind::measured && computed > 0 ? 1 : 0));
      for (const auto& entry : whole) {
        std::map<std::string, at::Tensor> state = whole;
        state.erase(entry.first);
        EXPECT_TRUE(test::throws_error([&] { cache.restore(state); },
                                       {name({.kind = kind, .threshold = 0.25}), "lacks " + entry.first}));
      }
      EXPECT_EQ(cache.state().size(), whole.size());
    }
  }
}

TEST_P(StepCacheTest, RefusesAStateWithInvalidCounts) {
  StepCache cache({.kind = CacheKind::first_block, .threshold = 0.25});
  std::map<std::string, at::Tensor> state = cache.state();
  ASSERT_EQ(state.size(), 1U);
  for (const at::Tensor& counts : {at::tensor(1, at::kLong), at::zeros({1}, at::kLong), at::zeros({2})}) {
    state.begin()->second = counts;
    EXPECT_TRUE(test::throws_error([&] { cache.restore(state); }, {state.begin()->first, "is not int64 [2]"}));
  }
}

TEST_P(StepCacheTest, RefusesAStateWithAnInvalidMeasurement) {
  StepCache cache({.kind = CacheKind::measured, .threshold = 0.25});
  EXPECT_FALSE(reuses(of(1, 1), {}, cache));
  std::map<std::string, at::Tensor> state = cache.state();
  for (const at::Tensor& measured : {at::tensor(1, at::kDouble), at::zeros({1}, at::kDouble), at::zeros({2})}) {
    state["measured"] = measured;
    EXPECT_TRUE(test::throws_error([&] { cache.restore(state); }, {"measured is not float64 [2]"}));
  }
}

TEST_P(StepCacheTest, ForecastsAlongTheChangeOfTheFirstBlock) {
  cache_ = StepCache({.kind = CacheKind::forecast, .threshold = 0.25});
  EXPECT_FALSE(reuses(of(8, 0), of(10, 20)));
  EXPECT_TRUE(reuses(of(9, 0)));  // reused without a forecast, as only one step was computed
  EXPECT_FALSE(reuses(of(12, 0), of(14, 16)));
  const std::vector<std::pair<at::Tensor, at::Tensor>> cases = {
      {of(14, 0), of(16, 14)},      // half of the change from 8 to 12: half of the other blocks' change
      {of(12, 2), of(14, 16)},      // orthogonal to the change from 8 to 12: no change
      {of(13, 1), of(14.5, 15.5)},  // a quarter of it and as much orthogonal to it: an eighth
      {of(11, 0), of(13, 17)},      // a quarter of it backwards
      {of(12, 0), of(14, 16)}};
  for (const auto& [first, expected] : cases) {
    cache_.begin_step();
    cache_.decide(first);
    ASSERT_TRUE(cache_.reuses()) << first;
    EXPECT_TRUE(test::close_to(cache_.recall(), expected, 1e-6)) << first;
  }
}

class MeasuredCache : public StepCacheTest {
 protected:
  MeasuredCache() { cache_ = StepCache({.kind = CacheKind::measured, .threshold = 0.25}); }
  /// Computes two steps. The second one changes both residuals by a quarter, so the ratio is (2 / 10) / (2 / 8) = 0.8.
  void compute_two_steps() {
    EXPECT_FALSE(reuses(of(8, 0)));
    EXPECT_FALSE(reuses(of(10, 0))) << "nothing was measured yet";
  }
};

TEST_P(MeasuredCache, AddsUpTheErrorsOfReusedSteps) {
  compute_two_steps();
  EXPECT_TRUE(reuses(of(12, 0)));  // 0.2 sqrt(0.8) = 0.18
  EXPECT_FALSE(reuses(of(12, 0)));
}

TEST_P(MeasuredCache, ReusesMoreStepsIfTheForecastWasRight) {
  compute_two_steps();
  EXPECT_FALSE(reuses(of(14, 0)));  // 0.4 sqrt(0.8). The forecast is 10 + 2 (10 - 8) = 14, which is right.
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(reuses(of(28, 0)));
}

TEST_P(MeasuredCache, ReusesFewerStepsIfTheForecastWasWrong) {
  const std::vector<std::pair<at::Tensor, bool>> cases = {{of(15, 0), true},    // 0.07 sqrt(1.25) = 0.08
                                                          {of(17, 0), false}};  // 0.21 sqrt(1.25) = 0.24
  for (const auto& [next, expected] : cases) {
    cache_ = StepCache({.kind = CacheKind::measured, .threshold = 0.2});
    compute_two_steps();
    EXPECT_FALSE(reuses(of(14, 0), of(28, 0)));  // relative error (28 - 14) / 28, change 0.4
    EXPECT_EQ(reuses(next), expected) << next;
  }
}

TEST_P(MeasuredCache, MeasuresTheFirstForwardPassWithoutText) {
  const auto step = [this](double first, const std::vector<at::Tensor>& rests) {
    cache_.begin_step();
    cache_.decide(of(first, 0));
    for (const at::Tensor& rest : rests) cache_.reuses() ? static_cast<void>(cache_.recall()) : cache_.remember(rest);
    return cache_.reuses();
  };
  const auto with_text = [this](double video, double text) { return at::cat({of(video, 0), of(text, text)}, 1); };
  EXPECT_FALSE(step(8, {with_text(8, 1), with_text(8, 1)}));
  EXPECT_FALSE(step(10, {with_text(8, 100), with_text(100, 1)}));  // the forecast is the last residual: no error
  EXPECT_TRUE(step(100, {with_text(0, 0), with_text(0, 0)}));
}

TEST_P(MeasuredCache, ResumesWithinReusedSteps) {
  for (const bool reused : {false, true}) {
    compute_two_steps();
    if (reused) {
      EXPECT_TRUE(reuses(of(12, 0)));
    }
    StepCache other({.kind = CacheKind::measured, .threshold = 0.25});
    other.restore(cache_.state());
    for (StepCache* each : {&cache_, &other}) {
      EXPECT_EQ(reuses(of(12, 0), of(28, 0), *each), !reused);
      EXPECT_FALSE(reuses(of(15, 0), of(28, 0), *each));
      EXPECT_TRUE(reuses(of(15, 0), of(28, 0), *each));
    }
    cache_ = StepCache({.kind = CacheKind::measured, .threshold = 0.25});
  }
}

TEST_P(MeasuredCache, DoesNotReuseAfterNaN) {
  EXPECT_FALSE(reuses(of(8, 0)));
  EXPECT_FALSE(reuses(of(10, 0), of(std::nan(""), 0)));
  EXPECT_FALSE(reuses(of(10, 0)));
}

TEST_P(MeasuredCache, MeasuresInStepsThatAreKnownToBeComputed) {
  compute_two_steps();
  cache_.begin_step(false);
  cache_.decide(of(12, 0));
  cache_.remember(of(12, 0));  // as forecast
  EXPECT_TRUE(reuses(of(24, 0)));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MeasuredCache, ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& each) { return c10::toString(each.param); });

TEST_P(StepCacheTest, ForecastsForAFixedNumberOfSteps) {
  cache_ = StepCache({.kind = CacheKind::steps, .steps = 2});
  const auto step = [this](bool reused, const at::Tensor& first, const at::Tensor& rest) {
    cache_.begin_step(reused);
    cache_.decide(first);
    EXPECT_EQ(cache_.reuses(), reused);
    if (reused)
      EXPECT_TRUE(test::close_to(cache_.recall(), rest, 1e-6)) << first;
    else
      cache_.remember(rest);
  };
  step(false, of(8, 0), of(10, 20));
  step(true, of(80, 0), of(10, 20));    // no forecast yet, as only one step was computed
  step(false, of(8.5, 0), of(14, 16));  // computed, although it is near 8
  step(true, of(9.5, 0), of(22, 8));    // forecasts twice the change from 8 to 8.5
}

TEST_P(StepCacheTest, ComputesAStepIfThereIsNothingToReuse) {
  cache_ = StepCache({.kind = CacheKind::steps, .steps = 2});
  cache_.begin_step(true);
  cache_.decide(of(8, 0));
  EXPECT_FALSE(cache_.reuses());
}

TEST_P(StepCacheTest, DoesNotForecastFromNaN) {
  cache_ = StepCache({.kind = CacheKind::forecast, .threshold = 0.25});
  EXPECT_FALSE(reuses(of(1, 1), of(5, 6)));
  cache_.begin_step();
  cache_.decide(of(2, 2));
  ASSERT_FALSE(cache_.reuses());
  cache_.remember(of(7, 8));
  cache_.begin_step();
  cache_.decide(of(std::nan(""), 2));
  EXPECT_FALSE(cache_.reuses());
  cache_.remember(of(7, 8));
  EXPECT_FALSE(reuses(of(4, 4), of(9, 9)));  // the last computed step had NaN, so nothing is reused
}

INSTANTIATE_TEST_SUITE_P(Dtypes, StepCacheTest, ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& each) { return c10::toString(each.param); });

TEST_P(StepCacheTest, ReplacesTensorsWithoutAllocating) {
  for (const CacheKind kind : {CacheKind::first_block, CacheKind::forecast}) {
    cache_ = StepCache({.kind = kind, .threshold = 1e-6});
    const std::vector<at::Tensor> firsts = {of(1, 2), of(3, 4), of(5, 7)}, rests = {of(2, 2), of(4, 3), of(6, 9)};
    for (size_t step = 0; step < 3; ++step) EXPECT_FALSE(reuses(firsts[step], rests[step]));
    const std::map<std::string, at::Tensor> state = cache_.state();
    EXPECT_TRUE(state.at("first").is_same(firsts[2]));
    EXPECT_TRUE(state.at("rest.0").is_same(rests[2]));
    ASSERT_EQ(state.size(), kind == CacheKind::first_block ? 3U : 5U);  // tensors of residuals, and one of counts
    if (kind == CacheKind::first_block) continue;
    EXPECT_TRUE(state.at("first.before").is_same(firsts[1]));
    EXPECT_TRUE(state.at("rest.0.before").is_same(rests[1]));
  }
}

class CachedTransformer : public ::testing::Test {
 protected:
  static Component random_component() {
    Component component;
    component.random_seed = 5;
    return component;
  }
  at::Tensor forward(const at::Tensor& latents, double time, StepCache* cache) {
    run_ = {};
    if (cache != nullptr) cache->begin_step();
    return transformer_->forward(latents, {text_}, at::full({2}, time), run_, cache);
  }
  std::vector<int64_t> calls() const {
    std::vector<int64_t> counts;
    for (const attention::Statistics& layer : run_.per_layer) counts.push_back(layer.calls);
    return counts;
  }

  c10::InferenceMode inference_;
  std::unique_ptr<LoadedTransformer> transformer_ =
      loaded_transformer(std::make_unique<test::ToyTransformer>(), random_component(), at::kCPU, at::kFloat);
  at::Tensor latents_ = at::randn({2, 4, 2, 4, 3}), text_ = at::zeros({2, 1, 8});
  AttentionRun run_;
};

TEST_F(CachedTransformer, ComputesTheSameAsWithoutACache) {
  StepCache cache({.threshold = 1e-30});
  for (const double time : {0.2, 0.3}) {
    EXPECT_TRUE(forward(latents_, time, &cache).equal(forward(latents_, time, nullptr))) << time;
    EXPECT_THAT(calls(), ElementsAre(1, 1, 1));
  }
}

TEST_F(CachedTransformer, AddsTheCachedUpdateOfTheOtherBlocks) {
  StepCache cache({.threshold = 0.5});
  const at::Tensor once = forward(latents_, 0.2, &cache);
  EXPECT_THAT(calls(), ElementsAre(1, 1, 1));
  EXPECT_TRUE(test::close_to(forward(latents_, 0.2, &cache), once, 1e-5));
  EXPECT_THAT(calls(), ElementsAre(1, 0, 0));
  // The toy's embedding, first block and head are always computed, and most of the change between steps comes from
  // them.
  const at::Tensor next = forward(latents_, 0.21, &cache), exact = forward(latents_, 0.21, nullptr);
  EXPECT_FALSE(next.equal(once));
  EXPECT_LT((next - exact).abs().mean().item<double>(), (once - exact).abs().mean().item<double>());
}

TEST_F(CachedTransformer, KeepsCachedTensorsDuringLaterForwards) {
  StepCache first({.threshold = 0.5}), second({.threshold = 0.5});
  const at::Tensor once = forward(latents_, 0.2, &first);
  forward(-latents_, 0.9, &second);
  EXPECT_TRUE(test::close_to(forward(latents_, 0.2, &first), once, 1e-5));
}

}  // namespace
}  // namespace sparsereel::models
