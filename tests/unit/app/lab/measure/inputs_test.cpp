// Tests the inputs, the exact reference and the contenders of `bench attention` on a CPU.
#include "app/lab/measure/inputs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "app/lab/bench/accuracy.h"
#include "app/lab/bench/contenders.h"
#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

constexpr Shape kShape{.batch = 2, .heads = 3, .tokens = 300, .head_dim = 32};

Inputs one_input(DataKind data, at::ScalarType dtype = at::kFloat, const Shape& shape = kShape) {
  return make_inputs(shape, data, dtype, at::kCPU, 1, 7).front();
}

TEST(Copies, ExceedTheCache) {
  const Shape large{.batch = 1, .heads = 40, .tokens = 75600, .head_dim = 128};
  const Shape middle{.batch = 2, .heads = 38, .tokens = 4429, .head_dim = 64};
  EXPECT_EQ(copies_beyond_cache(large, at::kBFloat16), 1);
  EXPECT_EQ(copies_beyond_cache(middle, at::kBFloat16), 2);
  EXPECT_EQ(copies_beyond_cache(kShape, at::kFloat), 256);
}

TEST(MadeInputs, RepeatForTheSameSeedAndDifferBetweenCopies) {
  for (const DataKind data : {DataKind::gaussian, DataKind::structured, DataKind::smooth, DataKind::loud}) {
    const auto first = make_inputs(kShape, data, at::kBFloat16, at::kCPU, 2, 7);
    const auto again = make_inputs(kShape, data, at::kBFloat16, at::kCPU, 2, 7);
    EXPECT_EQ(first[0].q.sizes(), at::IntArrayRef({2, 300, 3, 32}));
    EXPECT_EQ(first[0].k.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(first[0].q, again[0].q) && at::equal(first[1].v, again[1].v));
    EXPECT_FALSE(at::equal(first[0].q, first[1].q));
  }
}

TEST(StructuredInputs, ConcentrateAttentionNearTheDiagonal) {
  const Shape shape{.batch = 1, .heads = 4, .tokens = 1024, .head_dim = 64};
  const Inputs inputs = one_input(DataKind::structured, at::kFloat, shape);
  const at::Tensor q = inputs.q.transpose(1, 2), k = inputs.k.transpose(1, 2);
  const at::Tensor mass = at::softmax(at::matmul(q, k.transpose(2, 3)) / 8, 3);
  const at::Tensor position = at::arange(1024);
  const at::Tensor near = (position.unsqueeze(0) - position.unsqueeze(1)).abs() < 128;
  const double share = (mass * near).sum().item<double>() / mass.sum().item<double>();
  EXPECT_GT(share, 0.5);  // these keys, 0.23 of all, hold more than half of the attention
}

TEST(StructuredInputs, HaveLargeMeansInK) {
  const Inputs inputs = one_input(DataKind::structured);
  const double of_means = inputs.k.mean(1).square().mean().item<double>();
  const double around = (inputs.k - inputs.k.mean(1, true)).square().mean().item<double>();
  EXPECT_GT(of_means, around * 0.5);
}

TEST(SmoothInputs, HaveValuesThatDifferLittleBetweenNeighbors) {
  const Shape shape{.batch = 1, .heads = 2, .tokens = 1024, .head_dim = 64};
  const auto step = [&](DataKind data) {
    const at::Tensor v = one_input(data, at::kFloat, shape).v;
    const at::Tensor blocks = v.unflatten(1, {64, 16}).mean(2);
    return ((blocks.narrow(1, 1, 63) - blocks.narrow(1, 0, 63)).square().mean() / v.var()).item<double>();
  };
  EXPECT_LT(step(DataKind::smooth), 0.1);
  EXPECT_GT(step(DataKind::structured), 0.5);
}

TEST(LoudInputs, HoldMostOfTheEnergyOfKInFourChannelsWithoutAMean) {
  const Shape shape{.batch = 1, .heads = 2, .tokens = 4096, .head_dim = 128};
  const Inputs inputs = one_input(DataKind::loud, at::kFloat, shape);
  const at::Tensor energy = (inputs.k - inputs.k.mean(1, true)).square().sum(1).mean(1).flatten();
  EXPECT_GT((std::get<0>(energy.topk(4)).sum() / energy.sum()).item<double>(), 0.9);
  const at::Tensor of_q = inputs.q.square().mean(1).mean(1).flatten();
  EXPECT_LT(std::get<0>(of_q.topk(4, 0, false)).max().item<double>(), 0.1);
  EXPECT_NEAR(of_q.median().item<double>(), 1, 0.1);
}

TEST(MadeInputs, AcceptOddHeadDims) {
  for (const DataKind data : {DataKind::structured, DataKind::loud}) {
    const Inputs inputs = one_input(data, at::kFloat, {.batch = 1, .heads = 1, .tokens = 5, .head_dim = 17});
    EXPECT_EQ(inputs.k.size(3), 17);
    EXPECT_TRUE(inputs.k.isfinite().all().item<bool>());
  }
}

TEST(ExactAttention, AgreesWithSdpaOnEveryQuery) {
  const Inputs inputs = one_input(DataKind::gaussian);
  for (const bool causal : {false, true}) {
    const ExactRows exact = exact_attention(inputs, 1000, causal);
    EXPECT_EQ(exact.queries.size(0), 300);
    const at::Tensor expected = at::scaled_dot_product_attention(
                                    inputs.q.transpose(1, 2).to(at::kDouble), inputs.k.transpose(1, 2).to(at::kDouble),
                                    inputs.v.transpose(1, 2).to(at::kDouble), {}, 0.0, causal)
                                    .transpose(1, 2);
    EXPECT_LT((exact.out - expected).abs().max().item<double>(), 1e-12);
  }
}

constexpr Shape kShared{.batch = 2, .heads = 6, .tokens = 300, .head_dim = 32, .kv_heads = 2};

TEST(MadeInputs, HaveFewerHeadsOfKeysAndValuesOnRequest) {
  for (const DataKind data : {DataKind::gaussian, DataKind::structured, DataKind::smooth, DataKind::loud}) {
    const Inputs inputs = one_input(data, at::kFloat, kShared);
    EXPECT_EQ(inputs.q.sizes(), at::IntArrayRef({2, 300, 6, 32}));
    EXPECT_EQ(inputs.k.sizes(), at::IntArrayRef({2, 300, 2, 32}));
    EXPECT_EQ(inputs.v.sizes(), inputs.k.sizes());
    for (const at::Tensor& x : {inputs.q, inputs.k, inputs.v})
      EXPECT_GT(x.std(1).min().item<double>(), 0.1);  // every channel varies, so no element was left out
  }
  EXPECT_DOUBLE_EQ(input_bytes(kShared, at::kHalf, 3), 3 * 2.0 * 2 * 300 * 32 * (6 + 2 * 2));
}

TEST(ExactAttention, SharesHeadsOfKeysAndValues) {
  const Inputs inputs = one_input(DataKind::gaussian, at::kFloat, kShared);
  const auto heads = [](const at::Tensor& t) {
    return t.transpose(1, 2).repeat_interleave(6 / t.size(2), 1).to(at::kDouble);
  };
  const at::Tensor expected = at::scaled_dot_product_attention(heads(inputs.q), heads(inputs.k), heads(inputs.v));
  EXPECT_LT((exact_attention(inputs, 1000, false).out - expected.transpose(1, 2)).abs().max().item<double>(), 1e-12);
}

TEST(ExactAttention, SamplesOneQueryFromEachInterval) {
  const ExactRows exact = exact_attention(one_input(DataKind::gaussian), 10, true);
  for (int64_t i = 0; i < 10; ++i) {
    const auto query = exact.queries[i].item<int64_t>();
    EXPECT_GE(query, 30 * i);
    EXPECT_LT(query, 30 * (i + 1));
  }
}

TEST(Compare, IsZeroForExactOutputsAndOneForDoubledOnes) {
  const Inputs inputs = one_input(DataKind::gaussian);
  const ExactRows exact = exact_attention(inputs, 1000, false);
  EXPECT_EQ(compare(exact.out, exact).relative_l1(), 0);
  EXPECT_NEAR(compare(exact.out * 2, exact).cosine(), 1, 1e-12);
  EXPECT_NEAR(compare(exact.out * 2, exact).relative_l1(), 1, 1e-12);
}

TEST(ExactAttention, IsTheSameWhenManyQueriesAreSplitIntoParts) {
  const Inputs inputs =
      one_input(DataKind::gaussian, at::kFloat, {.batch = 1, .heads = 1, .tokens = 2100, .head_dim = 16});
  for (const bool causal : {false, true}) {
    const at::Tensor expected = at::scaled_dot_product_attention(
                                    inputs.q.transpose(1, 2).to(at::kDouble), inputs.k.transpose(1, 2).to(at::kDouble),
                                    inputs.v.transpose(1, 2).to(at::kDouble), {}, 0.0, causal)
                                    .transpose(1, 2);
    EXPECT_LT((exact_attention(inputs, 2100, causal).out - expected).abs().max().item<double>(), 1e-12);
  }
}

TEST(Accuracy, AddsSumsNotRatios) {
  const Inputs inputs = one_input(DataKind::gaussian);
  const ExactRows exact = exact_attention(inputs, 1000, false);
  Accuracy pooled = compare(exact.out, exact);
  ExactRows large = exact;
  large.out = exact.out * 3;
  // The references of the two comparisons have the sizes 1 and 3, and the sums of differences are 0 and 2.
  pooled += compare(exact.out, large);
  EXPECT_NEAR(pooled.relative_l1(), 2.0 / 4, 1e-12);
  EXPECT_NEAR(pooled.cosine(), 4 / std::sqrt(2 * 10.0), 1e-12);
}

/// Expects four contenders: full, quantized, sparse with every block and sparse with half of them.
void expect_every_mode(const Shape& shape) {
  AttentionOptions options;
  options.shapes = {shape.text()};
  options.lists["topk"] = "1,0.5";
  options.lists["dropped"] = "none";
  const AttentionPlan plan = make_plan(options);
  attention::Workspace workspace;
  const auto contenders = make_contenders(plan, plan.workloads[0], at::kCPU, at::kFloat, workspace);
  ASSERT_EQ(contenders.size(), 4U);
  const Inputs inputs = one_input(DataKind::structured, at::kFloat, shape);
  const ExactRows exact = exact_attention(inputs, 1000, false);
  EXPECT_LT(compare(contenders[0].run(inputs).out, exact).relative_l1(), 1e-5);
  EXPECT_LT(compare(contenders[1].run(inputs).out, exact).relative_l1(), 0.1);
  EXPECT_LT(compare(contenders[2].run(inputs).out, exact).relative_l1(), 1e-3);
  const AttentionResult sparse = contenders[3].run(inputs);
  EXPECT_GT(sparse.statistics.sparsity(), 0.3);
  EXPECT_EQ(contenders[3].policy->defaults.topk, 0.5);
}

TEST(Contenders, RunInEveryMode) {
  expect_every_mode(kShape);
  expect_every_mode(kShared);
}

}  // namespace
}  // namespace sparsereel::app::bench
