// Tests attend() on a CPU: compares full and sparse mode with attention in double, the other modes with these two, and
// tests masks, statistics and policies.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "attention/policies/policy.h"
#include "tests/unit/attention/attend_on_cpu.h"

namespace sparsereel::attention {
namespace {

using ::testing::StartsWith;

/// Returns softmax(q k^T scale) v and the log-sum-exp of the scores in double. `mask` is [B, H, Nq, Nk] of bool; true
/// means visible.
std::pair<at::Tensor, at::Tensor> expected(const Inputs& x, const at::Tensor& mask, double scale) {
  const auto heads_first = [](const at::Tensor& t) { return t.transpose(1, 2).to(at::kDouble); };
  at::Tensor scores = at::matmul(heads_first(x.q), heads_first(x.k).transpose(2, 3)) * scale;
  scores = scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor weights = at::nan_to_num(at::softmax(scores, 3), 0);
  return {at::matmul(weights, heads_first(x.v)).transpose(1, 2), at::logsumexp(scores, {3})};
}

at::Tensor everything(const Inputs& x) {
  return at::ones({2, x.q.size(2), x.q.size(1), x.k.size(1)}, at::kBool);
}

at::Tensor causal_mask(const Inputs& x) {
  const int64_t queries = x.q.size(1), keys = x.k.size(1);
  return everything(x).logical_and(at::ones({queries, keys}, at::kBool).tril(keys - queries));
}

void expect_matches(const Inputs& x, const Context& context, const at::Tensor& mask, double tolerance = 1e-5) {
  const double scale = context.scale.value_or(1 / std::sqrt(static_cast<double>(x.q.size(3))));
  const auto [out, lse] = expected(x, mask, scale);
  const Result result = run(x, context);
  EXPECT_EQ(result.out.sizes(), x.q.sizes());
  EXPECT_EQ(result.out.scalar_type(), x.q.scalar_type());
  EXPECT_LE(max_error(result.out, out), tolerance * out.abs().max().item<double>()) << result.kernel;
  ASSERT_EQ(result.lse.defined(), context.return_lse);
  if (!context.return_lse) return;
  EXPECT_TRUE(at::isinf(result.lse).equal(at::isinf(lse)));
  EXPECT_LE(max_error(at::nan_to_num(result.lse, 0, 0, 0), at::nan_to_num(lse, 0, 0, 0)), 1e-4) << result.kernel;
}

/// Returns the modes that must equal exact attention: full, and sparse with every block.
std::vector<Context> exact_contexts() {
  Context full, sparse;
  sparse.mode = Mode::sparse;
  sparse.policy.defaults.topk = 1;
  return {full, sparse};
}

TEST(Attend, EqualsExactAttentionIfEveryBlockIsKept) {
  for (const int64_t tokens : {1, 63, 64, 65, 130, 300})
    for (Context context : exact_contexts()) {
      for (const bool lse : {false, true}) {
        context.return_lse = lse;
        const Inputs x(tokens);
        expect_matches(x, context, everything(x));
      }
    }
}

TEST(Attend, AcceptsEveryHeadDim) {
  for (const int64_t head_dim : {16, 40, 64, 96, 128, 256})
    for (const Context& context : exact_contexts()) {
      const Inputs x(100, head_dim);
      expect_matches(x, context, everything(x));
    }
}

TEST(Attend, ObeysScale) {
  for (Context context : exact_contexts()) {
    context.scale = 0.3;
    const Inputs x(70);
    expect_matches(x, context, everything(x));
  }
}

TEST(Attend, ObeysACausalMaskWithAndWithoutOffset) {
  for (Context context : exact_contexts()) {
    context.causal = true;
    for (const bool lse : {false, true}) {
      context.return_lse = lse;
      Inputs x(150);
      expect_matches(x, context, causal_mask(x));
      x.k = x.k.narrow(1, 0, 100);  // the first 50 queries see no key
      x.v = x.v.narrow(1, 0, 100);
      expect_matches(x, context, causal_mask(x));
      Inputs y(150);
      y.q = y.q.narrow(1, 0, 40);
      expect_matches(y, context, causal_mask(y));
    }
  }
}

TEST(Attend, ObeysKeyLengths) {
  for (Context context : exact_contexts()) {
    context.return_lse = true;
    context.key_lengths = at::tensor({100, 0}, at::kLong);
    const Inputs x(130);
    at::Tensor mask = everything(x);
    mask.select(0, 0).narrow(2, 100, 30).fill_(false);
    mask.select(0, 1).fill_(false);
    expect_matches(x, context, mask);
  }
}

TEST(Attend, AddsTheBiasOfEachKey) {
  const Inputs x(100);
  at::Tensor bias = at::zeros({2, 100});
  bias[0].narrow(0, 30, 70).fill_(-std::numeric_limits<float>::infinity());
  Context context;
  context.key_bias = bias;
  expect_matches(x, context, everything(x).logical_and(bias.view({2, 1, 1, 100}).eq(0)));
  context.return_lse = true;
  context.causal = true;
  expect_matches(x, context, causal_mask(x).logical_and(bias.view({2, 1, 1, 100}).eq(0)));
}

TEST(Attend, KeepsTheOutputTypeOnACpuIfTheCallerAcceptsEightBits) {
  const Inputs x(100);
  for (const Mode mode : {Mode::full, Mode::quantized, Mode::sparse, Mode::check}) {
    const Result result = run(x, {.mode = mode, .takes_e4m3 = true});
    EXPECT_FALSE(result.out_scale.defined()) << name(mode);
    EXPECT_TRUE(result.out.equal(run(x, {.mode = mode}).out)) << name(mode);
  }
}

TEST(Attend, CountsAKeyWithABiasOfLogNAsNKeys) {
  const Inputs x(8);
  Context context;
  context.key_bias = at::zeros({2, 8});
  context.key_bias.select(1, 7).fill_(std::log(5.0));
  Workspace workspace;
  const auto five = [](const at::Tensor& t) { return at::cat({t, t.narrow(1, 7, 1).expand({-1, 4, -1, -1})}, 1); };
  const Result repeated = attend(x.q, five(x.k), five(x.v), {}, workspace);
  EXPECT_LE(max_error(run(x, context).out, repeated.out), 1e-5);
}

TEST(Attend, ObeysTheBlockMapOfTheCallerExactly) {
  for (Context context : exact_contexts()) {
    context.return_lse = true;
    context.text_tokens = 20;  // has no effect, because the caller gives the map
    context.policy.dropped = Dropped::none;
    context.policy.ranking = Ranking::mass;
    const Inputs x(200);
    BlockMap map(2, 3, 4, 4, true);
    for (size_t i = 0; i < map.bits.size(); ++i) map.bits[i] = i * 7 % 3 == 0 ? 1 : 0;
    std::fill(map.row(1, 2, 3), map.row(1, 2, 3) + 4, uint8_t{0});
    at::Tensor mask = everything(x);
    auto visible = mask.accessor<bool, 4>();
    for (int64_t i = 0; i < 200; ++i)
      for (int64_t j = 0; j < 200; ++j)
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t h = 0; h < 3; ++h)
            if (map.row(b, h, i / 64)[j / 64] == 0) visible[b][h][i][j] = false;
    context.block_map = map;
    expect_matches(x, context, mask);
    const Statistics statistics = run(x, context).statistics;
    EXPECT_EQ(statistics.total_blocks, 2 * 3 * 16);
    EXPECT_EQ(statistics.kept_blocks, std::count(map.bits.begin(), map.bits.end(), 1));
  }
}

TEST(Attend, RunsHalfPrecision) {
  for (const auto dtype : {at::kHalf, at::kBFloat16})
    for (const Context& context : exact_contexts()) {
      const Inputs x(100, 64, dtype);
      expect_matches(x, context, everything(x), dtype == at::kHalf ? 2e-3 : 1.6e-2);
    }
}

TEST(Attend, StaysNearExactAttentionInQuantizedMode) {
  const Inputs x(300);
  Context context;
  context.return_lse = true;
  const Result full = run(x, context);
  context.mode = Mode::quantized;
  context.policy.defaults.topk = 0.1;  // has no effect, because quantized mode computes every block
  const Result result = run(x, context);
  EXPECT_LT(relative_l1(result.out, full.out), 0.045);
  EXPECT_GT(relative_l1(result.out, full.out), 0.01);
  EXPECT_LT(max_error(result.lse, full.lse), 0.02);
  EXPECT_EQ(result.statistics.kept_blocks, result.statistics.total_blocks);
  EXPECT_EQ(result.statistics.sparsity(), 0);
  EXPECT_THAT(result.kernel, StartsWith("cpu int8"));
}

TEST(Attend, EmulatesTheInt8KernelIfTheEnvironmentNamesIt) {
  const Inputs x(300);
  const at::Tensor full = run(x, {}).out;
  const Result usual = run(x, {.mode = Mode::quantized});
  setenv("SPARSEREEL_ATTENTION_KERNEL", "ada", 1);
  const Result result = run(x, {.mode = Mode::quantized});
  unsetenv("SPARSEREEL_ATTENTION_KERNEL");
  EXPECT_THAT(usual.kernel, StartsWith("cpu int8 and e4m3 emulated"));
  EXPECT_THAT(result.kernel, StartsWith("cpu int8 emulated"));
  EXPECT_LT(relative_l1(result.out, full), 0.5 * relative_l1(usual.out, full));
}

TEST(Attend, ComputesTheRequestedShareInSparseMode) {
  const Inputs x(640);
  Context context;
  context.mode = Mode::sparse;
  context.policy.selection_rows = 64;  // tiles of one size, so that a budget is a number of blocks
  context.policy.defaults.topk = 0.3;
  const Result result = run(x, context);
  EXPECT_EQ(result.statistics.total_blocks, 2 * 3 * 100);
  EXPECT_EQ(result.statistics.kept_blocks, 2 * 3 * 10 * 3);
  EXPECT_EQ(result.statistics.calls, 1);
  EXPECT_GT(result.statistics.seconds, 0);
  EXPECT_NEAR(result.statistics.sparsity(), 0.7, 1e-9);
  EXPECT_THAT(result.kernel, StartsWith("cpu block-sparse fp32 ("));
}

TEST(Attend, ReportsTheErrorAgainstFullAttentionInCheckMode) {
  const Inputs x(640);
  Context context;
  const at::Tensor full = run(x, context).out;
  context.mode = Mode::sparse;
  const at::Tensor sparse = run(x, context).out;
  context.mode = Mode::check;
  const Result result = run(x, context);
  EXPECT_TRUE(result.out.equal(sparse));
  EXPECT_NEAR(result.statistics.sum_relative_l1, relative_l1(sparse, full), 1e-5);
  EXPECT_GT(result.statistics.sum_relative_l1, 0.1);
  EXPECT_EQ(result.statistics.max_relative_l1, result.statistics.sum_relative_l1);
}

TEST(Attend, RunsDenseLayersStepsAndHeadsWithEveryBlock) {
  const Inputs x(640);
  Policy policy;
  policy.selection_rows = 64;  // tiles of one size, so that a budget is a number of blocks
  policy.defaults.topk = 0.5;
  policy.dense_layers = 2;
  policy.dense_steps = 1;
  const auto kept = [&](int64_t layer, int64_t step) {
    return run(x, {.mode = Mode::sparse, .policy = policy.at(layer, step)}).statistics.kept_blocks;
  };
  EXPECT_EQ(kept(1, 5), 600);
  EXPECT_EQ(kept(2, 0), 600);
  EXPECT_EQ(kept(2, 1), 300);
  policy.per_head.assign(3, std::vector<HeadPolicy>(3, policy.defaults));
  policy.per_head[2][1].dense = true;
  EXPECT_EQ(kept(2, 1), 400);
  policy.per_head[2].resize(2);
  EXPECT_THROW(kept(2, 1), Error) << "a policy of two heads for a call of three";
}

TEST(Attend, SharesHeadsOfKeysAndValues) {
  for (const int64_t fewer : {1, 2, 6}) {
    const Inputs x = with_fewer(Inputs(300, 64, at::kFloat, 6), fewer), all = repeated(x);
    for (Context context : exact_contexts()) {
      context.return_lse = true;
      for (const bool causal : {false, true}) {
        context.causal = causal;
        const Result result = run(x, context);
        const auto [out, lse] = expected(all, causal ? causal_mask(all) : everything(all), 0.125);
        EXPECT_LE(max_error(result.out, out), 1e-5) << result.kernel;
        EXPECT_LE(max_error(result.lse, lse), 1e-4) << result.kernel;
      }
    }
    Context sparse{.mode = Mode::sparse};
    sparse.policy.defaults.topk = 0.4;
    EXPECT_TRUE(at::equal(run(x, sparse).out, run(all, sparse).out));
    const at::Tensor full = run(all, {}).out, eight_bits = run(x, {.mode = Mode::quantized}).out;
    EXPECT_LT(((eight_bits - full).abs().sum() / full.abs().sum()).item<double>(), 0.06);
  }
}

TEST(Attend, ObeysMapsOverSharedHeadsInFullMode) {
  const Inputs x = with_fewer(Inputs(300, 64, at::kFloat, 6), 2);
  BlockMap map(2, 6, 5, 5, false);
  for (size_t i = 0; i < map.bits.size(); ++i) map.bits[i] = i * 7 % 3 == 0 ? 1 : 0;
  for (const Dropped dropped : {Dropped::none, Dropped::mean}) {
    Context full, sparse{.mode = Mode::sparse};
    for (Context* context : {&full, &sparse}) {
      context->block_map = map;
      context->policy.dropped = dropped;
      context->policy.ranking = dropped == Dropped::mean ? Ranking::error : Ranking::mass;
    }
    EXPECT_LE(max_error(run(x, full).out, run(repeated(x), sparse).out), 1e-5);
  }
}

TEST(Attend, ReusesItsWorkspace) {
  Workspace workspace;
  Context context;
  context.mode = Mode::sparse;
  const Inputs large(300), small(70, 40);
  const at::Tensor first = attend(large.q, large.k, large.v, context, workspace).out;
  const void* memory = workspace.scratch.const_data_ptr();
  attend(small.q, small.k, small.v, context, workspace);
  EXPECT_TRUE(attend(large.q, large.k, large.v, context, workspace).out.equal(first));
  EXPECT_EQ(workspace.scratch.const_data_ptr(), memory);
}

TEST(Attend, ReturnsAContiguousOutputInFullMode) {
  const Inputs x(100);
  EXPECT_TRUE(run(x, Context()).out.is_contiguous()) << "[B, N, H, D], so that the heads can be joined by a view";
}

}  // namespace
}  // namespace sparsereel::attention
