// Tests that several calls, each with a part of the heads, give the same bits as one call with all heads.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <vector>

#include "attend_on_cpu.h"
#include "hilbert/error.h"
#include "tests/support/head_parts.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::attention {
namespace {

class HeadParts : public ::testing::Test {
 protected:
  HeadParts() {
    at::manual_seed(3);
    qkv_ = at::randn({2, kVideo + kText, 3, kHeads, kHeadDim});
    qkv_.select(2, 1).mul_(2);  // larger v, so that some blocks matter more than others
    context_.mode = Mode::sparse;
    context_.text_tokens = kText;
    context_.policy.selection_rows = 64;
    Prologue& prologue = context_.prologue;
    prologue.norm = Prologue::Norm::rms;
    prologue.across_heads = true;
    prologue.q_weight = at::rand({kHeads * kHeadDim}) + 0.5;
    prologue.k_weight = at::rand({kHeads * kHeadDim}) + 0.5;
    const at::Tensor angles = at::randn({kVideo, kHeadDim / 2}).repeat_interleave(2, 1);
    prologue.rotary_cos = angles.cos();
    prologue.rotary_sin = angles.sin();
  }

  /// Runs the call for the heads of one part.
  Result run_part(const HeadPart& part, int64_t heads) const {
    Context context = context_;
    context.part = part;
    Prologue& prologue = context.prologue;
    const auto of_part = [&](const at::Tensor& x) { return x.narrow(0, part.first * kHeadDim, heads * kHeadDim); };
    prologue.q_weight = of_part(prologue.q_weight);
    prologue.k_weight = of_part(prologue.k_weight);
    prologue.q_moments = token_moments(context_.prologue, qkv_.select(2, 0));
    prologue.k_moments = token_moments(context_.prologue, qkv_.select(2, 1));
    if (!policies_.empty())
      context.policy.heads = std::span(policies_).subspan(static_cast<size_t>(part.first), static_cast<size_t>(heads));
    return run(Projection(qkv_.narrow(3, part.first, heads)), context);
  }

  void check() {
    context_.policy.heads = policies_;
    const Result whole = run(Projection(qkv_), context_);
    const bool alike =
        std::ranges::all_of(policies_, [&](const HeadPolicy& policy) { return policy == policies_.front(); });
    std::mutex mutex;
    Statistics sum;
    test::run_parts({2, 2, 1}, alike, [&](const HeadPart& part, int64_t heads) {
      const Result result = run_part(part, heads);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(result.out.equal(whole.out.narrow(2, part.first, heads))) << part.first;
      sum += result.statistics;
    });
    EXPECT_EQ(sum.total_blocks, whole.statistics.total_blocks);
    EXPECT_EQ(sum.kept_blocks, whole.statistics.kept_blocks);
    EXPECT_LT(sum.kept_blocks, sum.total_blocks);
    EXPECT_NEAR(sum.sum_predicted_error, whole.statistics.sum_predicted_error, 1e-9);
  }

  static constexpr int64_t kHeads = 5, kHeadDim = 16, kVideo = 700, kText = 20;

  at::Tensor qkv_;
  Context context_;
  std::vector<HeadPolicy> policies_;
};

TEST_F(HeadParts, ShareTheBudgetOfABatchEntry) {
  for (const double topk : {0.02, 0.12, 0.5}) {
    context_.policy.defaults.topk = topk;
    check();
  }
}

TEST_F(HeadParts, ChooseTheSameBlocksByCdfAndByError) {
  context_.policy.defaults.selection = Selection::cdf;
  check();
  context_.policy.defaults.selection = Selection::error;
  context_.policy.defaults.error = 2;
  check();
}

TEST_F(HeadParts, MeasureErrorsByTheMeanLengthOfAllHeads) {
  context_.policy.defaults.selection = Selection::block_error;
  for (const double bound : {1.0, 3.0}) {
    context_.policy.defaults.block_error = bound;
    check();
  }
}

TEST_F(HeadParts, ChooseTheSameBlocksByMass) {
  context_.policy.ranking = Ranking::mass;
  context_.policy.dropped = Dropped::none;
  context_.policy.defaults.topk = 0.3;
  context_.policy.defaults.similarity = 0.01;
  check();
}

// Not all policies are equal, so every head has its own budget, even the first two heads with their equal policies.
TEST_F(HeadParts, HaveSeparateBudgetsIfPoliciesDiffer) {
  policies_.assign(kHeads, HeadPolicy{});
  policies_[3].topk = 0.4;
  policies_[4].dense = true;
  check();
}

TEST_F(HeadParts, RefuseWrongHeadsAndIncompleteMoments) {
  context_.part = HeadPart{.first = 4, .all = kHeads, .alike = true, .sum = {}};
  EXPECT_TRUE(test::throws_error([&] { run(Projection(qkv_), context_); }, {"5 heads from 4 on are not among all 5"}));
  context_.part.reset();
  context_.prologue.q_moments = token_moments(context_.prologue, qkv_.select(2, 0));
  EXPECT_TRUE(test::throws_error([&] { run(Projection(qkv_), context_); }, {"only one of q_moments and k_moments"}));
  context_.prologue.k_moments = context_.prologue.q_moments.narrow(1, 1, kVideo);
  EXPECT_TRUE(test::throws_error([&] { run(Projection(qkv_), context_); }, {"k_moments is [2, 700, 2]"}));
  context_.prologue.across_heads = false;
  EXPECT_TRUE(test::throws_error([&] { token_moments(context_.prologue, qkv_.select(2, 0)); }, {"across heads"}));
}

TEST_F(HeadParts, NormalizeAcrossAllHeadsByMoments) {
  for (const auto norm : {Prologue::Norm::rms, Prologue::Norm::layer}) {
    context_.prologue.norm = norm;
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const Projection x(qkv_.to(dtype));
      Context with = context_, without = context_;
      with.mode = without.mode = Mode::full;
      with.prologue.q_moments = token_moments(with.prologue, x.q);
      with.prologue.k_moments = token_moments(with.prologue, x.k);
      EXPECT_LT(max_error(run(x, with).out, run(x, without).out), dtype == at::kFloat ? 1e-6 : 2e-2);
    }
  }
}

}  // namespace
}  // namespace sparsereel::attention
