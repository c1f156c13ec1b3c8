// Tests attend() on a GPU with numbers that are large, of very different sizes, or nearly equal. Compares with the CPU.
#include <cmath>
#include <numbers>

#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::attention {
namespace {

TEST_F(AttendOnGpu, SkipsPvOnlyForNegligibleBlocks) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    Inputs x = inputs(1, 960, 960, 2, head_dim);
    x.q = x.q * 2;
    x.k.narrow(1, 0, 128).mul_(6);  // the first blocks have the largest scores, so P.V of later ones can be skipped
    x.q = rounded(x.q);
    x.k = rounded(x.k);
    expect_harmless_skips(x);
  }
}

TEST_F(AttendOnGpu, SkipsPvInLongLists) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    Inputs x = inputs(1, 200, 9000, 1, head_dim);
    x.q = rounded(x.q + 1);
    x.k.narrow(1, 0, 128).add_(1.5);  // these keys have the largest scores of all queries
    x.k = rounded(x.k);
    expect_harmless_skips(x);
  }
}

TEST_F(AttendOnGpu, StaysFiniteWithLargeScoresAndOutliers) {
  Inputs x = inputs(1, 400, 400, 2, 64);
  x.q = rounded(x.q * 20);
  x.k = rounded(x.k * 20);
  x.v.select(3, 5).mul_(300);
  x.v = rounded(x.v);
  const Context context{.mode = Mode::quantized};
  const Result gpu = on_gpu(x, context);
  EXPECT_TRUE(at::isfinite(gpu.out).all().item<bool>());
  Workspace workspace;  // with these inputs 8 bits have large errors on any device, so compare with the CPU's emulation
  EXPECT_GT(compare(gpu.out, attend(x.q, x.k, x.v, context, workspace).out).cosine, 0.99);
  Inputs unseen = inputs(1, 200, 2048, 1, 64);  // a channel that is 0 in all tokens of the statistics' sample
  unseen.v.select(3, 7).slice(1, 0, 2048, 4).fill_(0);
  EXPECT_TRUE(at::isfinite(on_gpu(unseen, context).out).all().item<bool>());
  Inputs equal = inputs(1, 200, 200, 1, 128);
  equal.k.fill_(0.5);
  expect_quantized_near_exact(equal);
}

// In trained models, a few channels of K hold most of its energy. The other channels must not lose their precision when
// K is quantized.
TEST_F(AttendOnGpu, KeepsThePrecisionOfOtherChannelsBesideLoudOnes) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    Context context{.mode = Mode::quantized};
    const Inputs x = loud_inputs(2000, 2, head_dim, context.prologue);
    const Result gpu = on_gpu(x, context);
    const auto has = [&](const char* format) { return gpu.kernel.find(format) != std::string::npos; };
    const double bound = has("e4m3 P.V") ? 0.046 : has("fp16 P.V") ? 0.022 : 0.024;
    EXPECT_LT(compare(gpu.out, exact(x, context).out).relative_l1, bound);
  }
}

// These gains lead to the three cases of hopper/softmax.cuh: linear exponentials without a clamp, linear exponentials
// with a clamp, and ex2.
TEST_F(AttendOnGpu, MatchesTheCpuForScoresOfEveryRange) {
  const Context context{.mode = Mode::quantized};
  for (const int64_t head_dim : {64, 128})
    for (const double gain : {1.5, 2.5, 5.0}) {
      SCOPED_TRACE(head_dim);
      SCOPED_TRACE(gain);
      Inputs x = inputs(1, 700, 1000, 2, head_dim);
      x.q = rounded(x.q * gain);
      x.k = rounded(x.k * gain);
      Workspace workspace;
      EXPECT_GT(compare(on_gpu(x, context).out, attend(x.q, x.k, x.v, context, workspace).out).cosine, 0.99);
    }
}

// All scores of a row may be far below zero: as far as the largest score of another row is above it.
TEST_F(AttendOnGpu, KeepsTheWeightsOfRowsWhoseScoresAreAllFarBelowZero) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    Inputs x = inputs(1, 256, 256, 1, head_dim);
    const double gain = 3.6 * std::pow(64.0 / static_cast<double>(head_dim), 0.25);  // scores of 150 log2 units
    x.q = gain + 0.1 * at::randn_like(x.q);
    x.k = gain + 0.1 * at::randn_like(x.k);
    x.k.narrow(1, 128, 128).neg_();
    x.q = rounded(x.q);
    x.k = rounded(x.k);
    BlockMap map(1, 1, 4, 4, false);
    for (int64_t i = 0; i < 4; ++i) map.row(0, 0, i)[2] = map.row(0, 0, i)[3] = 1;
    Context context{.mode = Mode::sparse, .block_map = map};
    context.policy.dropped = Dropped::none;
    context.policy.ranking = Ranking::mass;
    context.policy.defaults.pv_threshold = 32;
    EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.1);
  }
}

// Tests channels whose values are all equal, and a value whose distance from its block's mean is twice the largest |v|:
// a 1 among values of -1.
TEST_F(AttendOnGpu, HandlesConstantAndTwoSidedValues) {
  const Context context{.mode = Mode::quantized};
  for (const int64_t tokens : {1, 100, 700, 2000}) {
    SCOPED_TRACE(tokens);
    Inputs x = inputs(1, tokens, tokens, 2, 64);
    x.v.fill_(5);
    EXPECT_LT(compare(on_gpu(x, context).out, x.v).relative_l1, 0.01);
  }
  Inputs x = inputs(1, 128, 128, 1, 64);
  x.v.fill_(-1);
  x.v.narrow(1, 64, 64).fill_(1);
  x.v.select(1, 7).fill_(1);
  x.v.select(1, 100).fill_(-1);
  x.k.zero_();
  x.k.select(1, 7).fill_(4);  // so that all queries attend to the value that is far from its block's mean
  x.q.fill_(4);
  EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.06);
}

// V hardly changes, so thousands of products have the same sign. An accumulator that truncates them would lose more
// than a percent.
TEST_F(AttendOnGpu, StaysPreciseForValuesThatChangeSlowlyAlongTheTokens) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    Inputs x = inputs(1, 192, 16384, 2, head_dim);
    const at::Tensor phase = at::arange(16384).view({1, -1, 1, 1}) / 9000 + at::rand({1, 1, 2, head_dim});
    x.v = rounded(at::sin(phase * (2 * std::numbers::pi)) + 0.2 * at::randn_like(x.v));
    const Context context{.mode = Mode::quantized};
    EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.008);
  }
}

}  // namespace
}  // namespace sparsereel::attention
