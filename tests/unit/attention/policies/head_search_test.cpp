// Tests the search for a head's policy on made-up heads whose errors are known: the policy that it finds, the number of
// trials, and saving its state.
#include "attention/policies/head_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "hilbert/error.h"

namespace sparsereel::attention {
namespace {

Trial trial(double error, double work) {
  return {.error = error, .size = 1, .total_blocks = 1000, .kept_blocks = 1000 * work, .calls = 1};
}

/// Runs one attention call in which setting i of the ladder has the error error(i). Returns the number of settings that
/// the ladder wanted to try.
int call(Ladder& ladder, const std::function<double(size_t)>& error, double bound) {
  int asked = 0;
  ladder.begin_call();
  while (const auto point = ladder.wanted()) {
    ladder.report(trial(error(*point), 0.5), bound);
    ++asked;
  }
  return asked;
}

TEST(Ladder, BisectsToTheSparsestSettingWithinTheBound) {
  for (size_t edge = 0; edge <= 20; ++edge) {
    Ladder ladder(20);
    const int asked = call(
        ladder, [&](size_t point) { return point >= edge ? 0.05 : 0.07; }, 0.06);
    EXPECT_LE(asked, 5);
    EXPECT_EQ(ladder.found(), edge < 20 ? std::optional(edge) : std::nullopt);
  }
}

TEST(Ladder, FollowsTheMeanOverCallsWithFewQuestionsEach) {
  Ladder ladder(20);
  call(
      ladder, [](size_t point) { return point >= 10 ? 0.05 : 0.07; }, 0.06);
  for (int i = 0; i < 8; ++i)  // these calls need setting 13
    EXPECT_LE(call(
                  ladder, [](size_t point) { return point >= 13 ? 0.05 : 0.09; }, 0.06),
              4);
  EXPECT_EQ(ladder.found(), 13U);
  for (int i = 0; i < 40; ++i)  // these calls need only the sparsest setting
    EXPECT_LE(call(
                  ladder, [](size_t) { return 0.0; }, 0.06),
              2);
  EXPECT_EQ(ladder.found(), 0U);
}

TEST(Ladder, KeepsTheSettingOfTheHardestCallIfEachCallCounts) {
  Ladder ladder(20, /*each_call=*/true);
  for (const size_t needed : {4, 13, 9, 0, 0, 0}) {
    call(
        ladder, [&](size_t point) { return point >= needed ? 0.05 : 0.07; }, 0.06);
    EXPECT_EQ(ladder.found(), needed == 4 ? 4U : 13U);
  }
}

TEST(Ladder, FindsNothingIfNothingPasses) {
  for (const bool each_call : {false, true}) {
    Ladder ladder(5, each_call);
    for (int i = 0; i < 3; ++i)
      call(
          ladder, [](size_t) { return std::nan(""); }, 0.06);
    EXPECT_EQ(ladder.found(), std::nullopt);
  }
}

/// A made-up head: returns the relative L1 error and the work of a policy.
using Head = std::function<Trial(const HeadPolicy&)>;

void measure(HeadSearch& search, const Head& head, int calls = 1) {
  for (int i = 0; i < calls; ++i) {
    search.begin_call();
    for (int asked = 0; search.wanted(); ++asked) {
      ASSERT_LT(asked, 200);
      search.report(head(*search.wanted()));
    }
  }
}

/// A head whose attention is concentrated in few blocks: for the same error, cdf keeps fewer blocks than topk. A P.V
/// threshold below 3 adds an error of 0.01.
Trial concentrated(const HeadPolicy& policy) {
  if (policy.dense) return trial(0, 1);
  const bool cdf = policy.selection == Selection::cdf;
  Trial result = trial(cdf ? (1 - policy.cdf) * 0.5 : (1 - policy.topk) * 0.15, cdf ? policy.cdf * 0.3 : policy.topk);
  if (policy.similarity > 0) result.kept_blocks = std::min(1000.0, result.kept_blocks + 300);
  if (policy.pv_threshold < 3) {
    result.skipped_pv_blocks = result.kept_blocks / 2;
    result.error += 0.01;
  }
  return result;
}

TEST(HeadSearch, ChoosesThePolicyWithTheLeastWorkWithinTheBounds) {
  HeadSearch search({.topk = 0.5}, {.l1 = 0.06, .l2 = 0.065});
  measure(search, concentrated, 4);
  EXPECT_EQ(search.calls(), 4);
  const HeadChoice choice = search.choice();
  EXPECT_EQ(choice.policy.selection, Selection::cdf);
  EXPECT_LT(choice.policy.similarity, 0);
  EXPECT_LE(choice.trial.relative_l1(), 0.065);
  EXPECT_NEAR(choice.policy.cdf, 0.9, 0.021);  // the smallest cdf with 0.5 (1 - cdf) + 0.01 <= 0.065
  EXPECT_LT(choice.policy.pv_threshold, 3);
  EXPECT_NEAR(search.untuned().trial.relative_l1(), 0.075, 1e-9);
}

TEST(HeadSearch, KeepsTheBoundsInEachCallIfEachCallCounts) {
  double factor = 1;
  const Head head = [&](const HeadPolicy& policy) {
    Trial result = concentrated(policy);
    result.error *= factor;
    return result;
  };
  for (const bool each_call : {false, true}) {
    HeadSearch search({.topk = 0.5}, {.l1 = 0.06, .l2 = 0.065, .each_call = each_call});
    for (const double each : {1.0, 0.5, 2.0, 0.5, 1.0, 0.5, 0.5}) {
      factor = each;
      measure(search, head);
    }
    factor = 2;
    const HeadPolicy policy = search.choice().policy;
    EXPECT_FALSE(policy.dense);
    EXPECT_EQ(head(policy).relative_l1() <= 0.065, each_call) << "the hardest call";
    EXPECT_EQ(search.choice().trial.worst <= 0.065, each_call);
    EXPECT_NEAR(search.choice().trial.work(), head(policy).work(), 1e-9) << "also of blocks of sparser selections";
  }
}

TEST(HeadSearch, KeepsTheBoundOfTheSelectionIfEachCallCounts) {
  const Head head = [](const HeadPolicy& policy) {  // skipping P.V products adds an error of only 0.001
    Trial result = concentrated(policy);
    if (policy.pv_threshold < 3) result.error -= 0.009;
    return result;
  };
  HeadSearch search({.topk = 0.5}, {.l1 = 0.03, .l2 = 0.06, .each_call = true});
  measure(search, head, 3);
  HeadPolicy policy = search.choice().policy;
  EXPECT_LT(policy.pv_threshold, 3);
  policy.pv_threshold = 50;
  EXPECT_LE(head(policy).relative_l1(), 0.03);
}

TEST(HeadSearch, SkipsPvEvenIfAnotherSelectionBecomesBetterLater) {
  bool first = true;
  const Head head = [&](const HeadPolicy& policy) {  // topk is best in the first call, cdf in all calls together
    const bool cdf = policy.selection == Selection::cdf;
    const double share = cdf ? policy.cdf : policy.topk, bad = cdf ? 0.3 : first ? 0.15 : 0.55;
    Trial result = policy.dense ? trial(0, 1) : trial((1 - share) * bad, share * (cdf ? 0.65 : 0.6));
    if (policy.pv_threshold < 10) {
      result.skipped_pv_blocks = result.kept_blocks / 2;
      result.error += policy.pv_threshold < 5 ? 1 : 0.001;
    }
    return result;
  };
  HeadSearch search({.topk = 0.5}, {.l1 = 0.06, .l2 = 0.065, .each_call = true});
  for (int i = 0; i < 4; ++i) {
    measure(search, head);
    EXPECT_EQ(search.choice().policy.pv_threshold, 5);
    first = false;
  }
  EXPECT_LE(search.choice().trial.worst, 0.065);
}

TEST(HeadSearch, LeavesHeadsDenseThatGainLessThanATenth) {
  HeadSearch search({}, {});
  measure(search, [](const HeadPolicy& policy) {
    return trial(policy.selection == Selection::topk ? 1 - policy.topk : 1 - policy.cdf, 0.95);
  });
  EXPECT_TRUE(search.choice().policy.dense);
  EXPECT_EQ(search.choice().trial.work(), 1);
}

TEST(HeadSearch, NeverChoosesASettingThatGivesNan) {
  HeadSearch search({}, {});
  measure(
      search, [](const HeadPolicy&) { return trial(std::nan(""), 0.2); }, 2);
  EXPECT_TRUE(search.choice().policy.dense);
}

TEST(HeadSearch, ContinuesFromASavedState) {
  HeadSearch search({}, {});
  measure(search, concentrated, 2);
  std::vector<double> numbers;
  search.save(numbers);
  HeadSearch restored({}, {});
  EXPECT_TRUE(restored.restore(numbers).empty());
  EXPECT_EQ(restored.choice().policy, search.choice().policy);
  search.begin_call();
  restored.begin_call();
  while (search.wanted()) {
    ASSERT_EQ(restored.wanted(), search.wanted());
    const Trial result = concentrated(*search.wanted());
    search.report(result);
    restored.report(result);
  }
  EXPECT_FALSE(restored.wanted());
  EXPECT_EQ(restored.calls(), 3);
}

TEST(HeadSearch, RefusesDamagedNumbers) {
  HeadSearch search({}, {});
  measure(search, concentrated);
  std::vector<double> numbers;
  search.save(numbers);
  const std::span<const double> all = numbers;
  EXPECT_THROW(HeadSearch({}, {}).restore(all.first(all.size() - 1)), Error);
  // `dropped` is the index of the flag that says that the first way to select blocks is given up, `way` the distance to
  // the next way's flag.
  const size_t dropped = 8, way = 1 + 2 + 20 * 7;
  numbers[dropped] = 2;
  EXPECT_THROW(HeadSearch({}, {}).restore(numbers), Error);
  for (size_t i = 0; i < 8; ++i) numbers[dropped + i * way] = 1;
  EXPECT_THROW(HeadSearch({}, {}).restore(numbers), Error);
  numbers[dropped] = 0;
  EXPECT_NO_THROW(HeadSearch({}, {}).restore(numbers));
  numbers[4] = 2000;  // 2000 kept blocks, but there are only 1000 blocks
  EXPECT_THROW(HeadSearch({}, {}).restore(numbers), Error);
}

double total_work(const std::vector<std::vector<HeadChoice>>& choices) {
  double sum = 0;
  for (const auto& layer : choices)
    for (const HeadChoice& head : layer) sum += head.trial.work();
  return sum;
}

TEST(Choose, NeverNeedsMoreWorkThanTheUntunedPolicy) {
  // The untuned policy keeps half of the blocks. Within the error bound, the first head needs more blocks and the
  // second head needs few.
  const Head difficult = [](const HeadPolicy& policy) {
    const double share = policy.selection == Selection::topk ? policy.topk : policy.cdf;
    return policy.dense ? trial(0, 1) : trial((1 - share) * 0.2, share);
  };
  HeadSearch first({.topk = 0.5}, {}), second({.topk = 0.5}, {});
  measure(first, difficult);
  measure(second, concentrated);
  const auto balanced = choose({{first, second}});  // the second head saves what the first needs
  EXPECT_LE(total_work(balanced), 1);
  EXPECT_LE(balanced[0][0].trial.relative_l1(), 0.065);
  const auto alone = choose({{first, first}});
  EXPECT_LE(total_work(alone), 1);
  EXPECT_EQ(alone[0][0].policy, HeadPolicy{.topk = 0.5});
  const auto bounded = within_bounds({{first, first}});  // within the bound, although the work grows
  EXPECT_GT(total_work(bounded), 1);
  EXPECT_LE(bounded[0][0].trial.relative_l1(), 0.065);
}

TEST(Choose, LeavesHeadsDenseThatTheUntunedPolicyBreaks) {
  // The untuned policy keeps hardly any block and has a huge error. All other policies need more blocks, so a search
  // that only reduces work would not choose them.
  HeadPolicy untuned;
  untuned.topk = 0.01;
  const Head fragile = [&](const HeadPolicy& policy) {
    if (policy == untuned) return trial(1e30, 0.01);
    return trial(0.1, 0.5);
  };
  HeadSearch search(untuned, {});
  measure(search, fragile);
  EXPECT_TRUE(search.untuned().policy.dense);
  EXPECT_EQ(search.untuned().trial.relative_l1(), 0);
  EXPECT_TRUE(choose({{search}})[0][0].policy.dense);
}

}  // namespace
}  // namespace sparsereel::attention
