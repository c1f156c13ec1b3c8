// Tests attend() on a CPU if means replace dropped blocks and blocks are selected by predicted error: modes, maps,
// statistics.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/attention/attend_on_cpu.h"

namespace sparsereel::attention {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kHeads = 3;

/// Tokens that resemble their neighbors, as in a video in Hilbert order. Some blocks are more uniform than others.
struct GroupedInputs : Projection {
  explicit GroupedInputs(int64_t tokens, at::ScalarType dtype = at::kFloat, int64_t head_dim = 64)
      : Projection(alike(tokens, head_dim).to(dtype)) {}

 private:
  static at::Tensor alike(int64_t tokens, int64_t head_dim) {
    at::manual_seed(5);
    const auto hold = [&](const at::Tensor& x, int64_t group) {
      return x.repeat_interleave(group, 1).narrow(1, 0, tokens);
    };
    const at::Tensor level = at::randn({2, tokens / 192 + 1, 3, kHeads, head_dim});
    const at::Tensor spread = at::arange(tokens / 64 + 1).remainder(5).mul(0.3).add(0.1).view({1, -1, 1, 1, 1});
    const at::Tensor noise = at::randn({2, tokens, 3, kHeads, head_dim});
    return hold(level, 192) + hold(spread, 64) * noise;
  }
};

Context sparse(double topk, Dropped dropped = Dropped::mean, Ranking ranking = Ranking::error, int64_t cell = 16) {
  Context context;
  context.mode = Mode::sparse;
  context.policy.dropped = dropped;
  context.policy.ranking = ranking;
  context.policy.cell = cell;
  context.policy.defaults.selection = Selection::topk;
  context.policy.defaults.topk = topk;
  return context;
}

BlockMap some_blocks(const GroupedInputs& x) {
  BlockMap map(2, kHeads, blocks_of(x.q.size(1)), blocks_of(x.k.size(1)), true);
  for (size_t i = 0; i < map.bits.size(); ++i) map.bits[i] = i * 7 % 5 < 2 ? 1 : 0;
  // Query block 1 of this head keeps no block.
  std::fill(map.row(1, 2, 1), map.row(1, 2, 1) + map.key_blocks, uint8_t{0});
  return map;
}

/// Computes attention to the keys of kept blocks and the means of dropped blocks, in double. Supports no text, masks or
/// key lengths. Returns the output and the log-sum-exp of its scores.
std::pair<at::Tensor, at::Tensor> by_hand(const GroupedInputs& x, const BlockMap& map, int64_t cell) {
  const int64_t tokens = x.q.size(1), keys = x.k.size(1);
  const double scale = 1 / std::sqrt(static_cast<double>(x.q.size(3)));
  at::Tensor out = at::zeros(x.q.sizes(), at::kDouble), lse = at::zeros({2, kHeads, tokens}, at::kDouble);
  const auto head = [](const at::Tensor& t, int64_t b, int64_t h) { return t[b].select(1, h).to(at::kDouble); };
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t i = 0; i < map.query_blocks; ++i) {
        const at::Tensor k = head(x.k, b, h), v = head(x.v, b, h);
        std::vector<at::Tensor> all_k, all_v, bias;
        for (int64_t j = 0; j < map.key_blocks; ++j) {
          const int64_t first = j * 64, count = std::min<int64_t>(64, keys - first);
          const bool kept = map.row(b, h, i)[j] != 0;
          if (!kept && count < 64) continue;
          const int64_t cells = kept ? count : 64 / cell;
          const auto means = [&](const at::Tensor& t) {
            return t.narrow(0, first, count).unflatten(0, {cells, -1}).mean(1);
          };
          all_k.push_back(means(k));
          all_v.push_back(means(v));
          bias.push_back(at::full({cells}, kept ? 0 : std::log(static_cast<double>(cell)), at::kDouble));
        }
        const int64_t rows = std::min<int64_t>(64, tokens - i * 64);
        const at::Tensor q = head(x.q, b, h).narrow(0, i * 64, rows);
        const at::Tensor scores = at::matmul(q, at::cat(all_k).t()) * scale + at::cat(bias);
        out[b].select(1, h).narrow(0, i * 64, rows).copy_(at::matmul(at::softmax(scores, 1), at::cat(all_v)));
        lse[b][h].narrow(0, i * 64, rows).copy_(at::logsumexp(scores, {1}));
      }
  return {out, lse};
}

TEST(AttendWithMeans, ObeysTheMapOfTheCallerInEveryMode) {
  for (const int64_t cell : {16, 32, 64}) {
    const GroupedInputs x(330);
    Context context = sparse(0.5, Dropped::mean, Ranking::mass, cell);
    context.return_lse = true;
    context.block_map = some_blocks(x);
    const auto [out, lse] = by_hand(x, *context.block_map, cell);
    const double size = out.abs().max().item<double>();
    int64_t means = 0;
    for (const Mode mode : {Mode::sparse, Mode::check, Mode::full, Mode::quantized}) {
      context.mode = mode;
      const Result result = run(x, context);
      EXPECT_LE(max_error(result.out, out), (mode == Mode::quantized ? 0.05 : 1e-5) * size) << result.kernel;
      EXPECT_LE(max_error(result.lse, lse), mode == Mode::quantized ? 0.06 : 1e-4) << result.kernel;
      EXPECT_THAT(result.kernel, EndsWith(", means of " + std::to_string(cell) + " tokens for dropped blocks"));
      if (mode == Mode::sparse) means = result.statistics.mean_blocks;
      EXPECT_EQ(result.statistics.mean_blocks, means);
      EXPECT_EQ(result.statistics.kept_blocks,
                std::count(context.block_map->bits.begin(), context.block_map->bits.end(), 1));
      EXPECT_LT(result.statistics.sum_relative_l1, 1e-5) << "check: the map is full's too";
    }
    EXPECT_GT(means, 0);
    context.mode = Mode::sparse;
    context.policy.dropped = Dropped::none;
    const Result dropped = run(x, context);
    EXPECT_GT(max_error(dropped.out, out), 0.1 * size);
    EXPECT_EQ(dropped.statistics.mean_blocks, 0);
    EXPECT_THAT(dropped.kernel, Not(HasSubstr("means")));
  }
}

TEST(AttendWithMeans, AgreesWithFullAttentionUnderTextMasksAndLengths) {
  for (const bool causal : {false, true})
    for (const bool lengths : {false, true}) {
      const GroupedInputs x(400);
      Context context = sparse(0.5, Dropped::mean, Ranking::mass);
      context.return_lse = true;
      context.text_tokens = 90;
      context.causal = causal;
      if (lengths) context.key_lengths = at::tensor({150, 400}, at::kLong);
      context.block_map = some_blocks(x);
      const Result sparse_result = run(x, context);
      context.mode = Mode::full;
      const Result full = run(x, context);
      EXPECT_LE(max_error(sparse_result.out, full.out), 1e-5);
      EXPECT_TRUE(at::isinf(full.lse).equal(at::isinf(sparse_result.lse)));
      EXPECT_LE(max_error(at::nan_to_num(full.lse, 0, 0, 0), at::nan_to_num(sparse_result.lse, 0, 0, 0)), 1e-4);
      EXPECT_EQ(sparse_result.statistics.mean_blocks, full.statistics.mean_blocks);
      EXPECT_EQ(sparse_result.statistics.kept_blocks, full.statistics.kept_blocks);
    }
}

TEST(AttendWithMeans, ErrsLessThanDroppingAndLeastWithRankingByError) {
  const GroupedInputs x(1280);
  const at::Tensor full = run(x, Context()).out;
  const auto error = [&](Context context) {
    context.policy.selection_rows = 64;  // with more queries per selection, the errors would differ less
    const Result result = run(x, context);
    EXPECT_EQ(result.statistics.kept_blocks, 2 * kHeads * 20 * 6);
    return relative_l1(result.out, full);
  };
  const double dropped = error(sparse(0.3, Dropped::none, Ranking::mass));
  const double means = error(sparse(0.3, Dropped::mean, Ranking::mass)), best = error(sparse(0.3));
  EXPECT_LT(means, 0.6 * dropped);
  EXPECT_LT(best, 0.95 * means);
  EXPECT_LT(best, error(sparse(0.3, Dropped::mean, Ranking::error, 64))) << "smaller cells err less";
}

TEST(AttendWithMeans, RunsHalfPrecision) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const GroupedInputs x(640, dtype);
    GroupedInputs same = x;
    for (at::Tensor* t : {&same.q, &same.k, &same.v}) *t = t->to(at::kFloat);
    EXPECT_LE(relative_l1(run(x, sparse(0.3)).out, run(same, sparse(0.3)).out), dtype == at::kHalf ? 1e-3 : 8e-3);
  }
}

TEST(AttendWithMeans, CountsMeansSeparatelyFromBlocks) {
  // Ranking by mass keeps the same number of blocks in every tile.
  const Result result = run(GroupedInputs(640), sparse(0.3, Dropped::mean, Ranking::mass));
  EXPECT_EQ(result.statistics.kept_blocks, 2 * kHeads * 10 * 3);
  EXPECT_EQ(result.statistics.mean_blocks, 2 * kHeads * 10) << "7 dropped blocks of 4 cells: 28 cells, one block";
  EXPECT_NEAR(result.statistics.sparsity(), 0.7, 1e-9);
  EXPECT_NEAR(result.statistics.mean_share(), 0.1, 1e-9);
}

TEST(AttendWithMeans, PredictsErrorsIfRankingIsByError) {
  const GroupedInputs x(640);
  const Result few = run(x, sparse(0.2)), many = run(x, sparse(0.6)), all = run(x, sparse(1));
  EXPECT_EQ(few.statistics.predicted_tiles, 2 * kHeads * 4);
  EXPECT_GT(few.statistics.predicted_error(), many.statistics.predicted_error());
  EXPECT_GT(many.statistics.predicted_error(), 0);
  EXPECT_EQ(all.statistics.predicted_error(), 0);
  EXPECT_EQ(all.statistics.mean_blocks, 0);
  EXPECT_EQ(run(x, sparse(0.2, Dropped::mean, Ranking::mass)).statistics.predicted_tiles, 0);
}

TEST(AttendWithMeans, SelectsBlocksUpToAnErrorBound) {
  const GroupedInputs x(1280);
  Context context = sparse(0.5);
  context.mode = Mode::check;
  context.policy.defaults.selection = Selection::error;
  Statistics before;
  for (const double bound : {0.02, 0.05, 0.1, 0.2}) {
    context.policy.defaults.error = bound;
    const Statistics statistics = run(x, context).statistics;
    EXPECT_LE(statistics.predicted_error(), bound);
    EXPECT_GT(statistics.predicted_error(), 0.5 * bound) << "what is allowed is used";
    EXPECT_LT(statistics.mean_relative_l1(), bound) << "a bound of lengths that add up is far from reached";
    EXPECT_GT(statistics.sparsity(), before.sparsity());
    EXPECT_GT(statistics.mean_relative_l1(), before.mean_relative_l1());
    before = statistics;
  }
}

TEST(AttendWithMeans, DropsNothingInDenseCalls) {
  const GroupedInputs x(640);
  const at::Tensor full = run(x, Context()).out;
  Context context = sparse(0.1);
  context.policy.dense = true;
  const Result dense = run(x, context);
  EXPECT_EQ(dense.statistics.mean_blocks, 0);
  EXPECT_EQ(dense.statistics.predicted_tiles, 0);
  EXPECT_THAT(dense.kernel, Not(HasSubstr("means")));
  EXPECT_LE(max_error(dense.out, full), 1e-5);
  context.mode = Mode::quantized;
  const Result quantized = run(x, context);
  EXPECT_EQ(quantized.statistics.mean_blocks, 0);
  EXPECT_THAT(quantized.kernel, Not(HasSubstr("means")));
  context.mode = Mode::sparse;
  context.policy.dense = false;
  EXPECT_GT(run(x, context).statistics.mean_blocks, 0);
}

TEST(AttendWithMeans, IsOffUnlessRequested) {
  const GroupedInputs x(640);
  Context dropping = sparse(0.3, Dropped::none, Ranking::mass, 16), other = dropping;
  other.policy.cell = 64;
  EXPECT_TRUE(run(x, dropping).out.equal(run(x, other).out));
  EXPECT_FALSE(run(x, dropping).out.equal(run(x, sparse(0.3, Dropped::mean, Ranking::mass)).out));
}

TEST(AttendWithMeans, GivesTheSameBitsTwice) {
  const GroupedInputs x(700);
  Workspace workspace;
  const auto once = [&] { return attend(x.q, x.k, x.v, sparse(0.3), workspace); };
  const Result first = once(), second = once();
  EXPECT_TRUE(first.out.equal(second.out));
  EXPECT_EQ(first.statistics.sum_predicted_error, second.statistics.sum_predicted_error);
}

}  // namespace
}  // namespace sparsereel::attention
