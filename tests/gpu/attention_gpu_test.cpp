// Tests attend() on a GPU against the CPU's exact attention: shapes, masks, selection, prologue, dispatch.
#include <gmock/gmock.h>

#include <cstdlib>
#include <tuple>

#include "attention/prologue.h"
#include "attention/token_gather.h"
#include "hilbert/error.h"
#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::attention {
namespace {

TEST_F(AttendOnGpu, StaysNearFullAttentionAtEverySequenceLength) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 1000, 2336}) {
    SCOPED_TRACE(tokens);
    expect_quantized_near_exact(inputs(1, tokens, tokens, 2, 64));
    expect_quantized_near_exact(inputs(1, tokens, tokens, 2, 128));
  }
}

// These calls have few tiles of queries, each with a long list of key blocks. A GPU with 132 multiprocessors splits
// every tile into parts, except in the largest call, of which it computes 132 tiles whole and 30 in parts.
TEST_F(AttendOnGpu, StaysNearFullAttentionIfTilesAreSplitIntoParts) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    expect_quantized_near_exact(inputs(1, 5000, 5000, 2, head_dim));
    expect_quantized_near_exact(inputs(1, 700, 6001, 5, head_dim));
    expect_quantized_near_exact(inputs(2, 5000, 5000, 3, head_dim));
    const Inputs x = inputs(1, 5003, 5003, 2, head_dim);
    Context context{.mode = Mode::sparse};
    context.policy.defaults.topk = 0.9;
    const Result first = on_gpu(x, context);
    EXPECT_LT(compare(first.out, exact(x, context).out).relative_l1, 0.06);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(on_gpu(x, context).out, first.out));
  }
}

TEST_F(AttendOnGpu, StaysNearFullAttentionAtEveryHeadDim) {
  for (const int64_t head_dim : {16, 20, 32, 40, 64, 72, 80, 96, 127, 128, 160, 192, 256}) {
    SCOPED_TRACE(head_dim);
    expect_quantized_near_exact(inputs(2, 300, 300, 3, head_dim, at::kHalf), {}, at::kHalf);
  }
}

TEST_F(AttendOnGpu, AcceptsDifferentNumbersOfQueriesAndKeys) {
  expect_quantized_near_exact(inputs(2, 77, 500, 2, 64));
  expect_quantized_near_exact(inputs(2, 500, 77, 2, 128));
}

TEST_F(AttendOnGpu, AppliesCausalMasksInsideTheDiagonalBlocks) {
  for (const auto& [queries, keys] : {std::pair{500, 500}, {100, 500}, {500, 100}, {64, 64}, {1, 130}}) {
    SCOPED_TRACE(queries);
    for (const int64_t head_dim : {64, 128, 192}) {
      SCOPED_TRACE(head_dim);
      expect_quantized_near_exact(inputs(1, queries, keys, 2, head_dim), {.causal = true}, at::kBFloat16, 0.07);
    }
  }
}

TEST_F(AttendOnGpu, HidesPaddingByKeyLengths) {
  for (const bool causal : {false, true}) {
    Context context{.causal = causal, .key_lengths = at::tensor({300, 65, 0, 1}, at::kLong)};
    for (const int64_t head_dim : {64, 128, 256}) {
      SCOPED_TRACE(head_dim);
      Inputs x = inputs(4, 300, 300, 2, head_dim);
      x.v.select(0, 1).narrow(0, 65, 235).fill_(1000);  // V of padding is large, so that any effect of it would be seen
      expect_quantized_near_exact(x, context);
    }
  }
}

TEST_F(AttendOnGpu, ObeysTheBlockMapOfTheCaller) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    const Inputs x = inputs(2, 700, 700, 2, head_dim);
    BlockMap map(2, 2, 11, 11, false);
    const at::Tensor random = at::rand({static_cast<int64_t>(map.bits.size())});
    for (size_t i = 0; i < map.bits.size(); ++i)
      map.bits[i] = random[static_cast<int64_t>(i)].item<double>() < 0.4 ? 1 : 0;
    for (int64_t j = 0; j < 11; ++j) map.row(0, 0, 3)[j] = 0;  // no key for one block of queries
    Context context{.mode = Mode::sparse, .block_map = map, .return_lse = true};
    context.policy.dropped = Dropped::none;
    context.policy.ranking = Ranking::mass;
    context.policy.defaults.pv_threshold = 32;
    const Result gpu = on_gpu(x, context), cpu = exact(x, context);
    const Errors errors = compare(gpu.out, cpu.out);
    EXPECT_LT(errors.relative_l1, 0.06);
    EXPECT_EQ(gpu.statistics.kept_blocks, cpu.statistics.kept_blocks);
    EXPECT_EQ(gpu.out.cpu().select(0, 0).narrow(0, 192, 64).select(1, 0).abs().max().item<double>(), 0.0);
    EXPECT_TRUE(at::equal(at::isinf(gpu.lse.cpu()), at::isinf(cpu.lse)));
  }
}

TEST_F(AttendOnGpu, KeepsAsManyBlocksByTopkAsTheCpu) {
  // 0.7 of ten blocks are seven, but fewer if 0.7 is rounded to fp32.
  const Inputs x = inputs(1, 640, 640, 2, 64);
  for (const double topk : {0.3, 0.35, 0.7, 0.9}) {
    SCOPED_TRACE(topk);
    Context context{.mode = Mode::sparse};
    context.policy.selection_rows = 64;
    context.policy.defaults.topk = topk;
    context.policy.defaults.pv_threshold = 32;
    EXPECT_EQ(on_gpu(x, context).statistics.kept_blocks, exact(x, context).statistics.kept_blocks);
  }
}

TEST_F(AttendOnGpu, SelectsTheSameBlocksAsTheCpu) {
  for (const int64_t rows : {64, 128, 192}) {
    for (const auto selection : {Selection::topk, Selection::cdf}) {
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(rows);
        // Clusters of similar tokens make the selection prefer some blocks.
        Inputs x = inputs(1, 1500, 1500, 2, 64);
        const at::Tensor centers =
            (at::randn({24, 1, 2, 64}) * 2).expand({24, 64, 2, 64}).reshape({1, 1536, 2, 64}).narrow(1, 0, 1500);
        x.q = rounded(x.q + centers);
        x.k = rounded(x.k + centers);
        Context context{.mode = Mode::sparse, .text_tokens = 100, .causal = causal};
        context.policy.dropped = Dropped::none;
        context.policy.ranking = Ranking::mass;
        context.policy.selection_rows = rows;
        context.policy.defaults.selection = selection;
        context.policy.defaults.topk = 0.3;
        context.policy.defaults.cdf = 0.8;
        context.policy.defaults.similarity = 0.2;
        context.policy.defaults.pv_threshold = 32;
        const Result gpu = on_gpu(x, context), cpu = exact(x, context);
        EXPECT_NEAR(gpu.statistics.sparsity(), cpu.statistics.sparsity(), 0.01);
        EXPECT_GT(cpu.statistics.sparsity(), 0.1);
        EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, 0.08);
      }
    }
  }
}

TEST_F(AttendOnGpu, AcceptsAnyStridesWithContiguousHeadDim) {
  const Inputs x = inputs(2, 260, 260, 3, 64);
  const at::Tensor fused = at::stack({x.q, x.k, x.v}, 2).to(at::kCUDA, at::kBFloat16);  // [B, N, 3, H, D]
  const at::Tensor heads_first = x.q.transpose(1, 2).contiguous().transpose(1, 2).to(at::kCUDA, at::kBFloat16);
  const Context context{.mode = Mode::quantized};
  const at::Tensor expected = on_gpu(x, context).out;
  EXPECT_TRUE(
      at::equal(attend(fused.select(2, 0), fused.select(2, 1), fused.select(2, 2), context, workspace_).out, expected));
  EXPECT_TRUE(
      at::equal(attend(heads_first, fused.select(2, 1), fused.select(2, 2), context, workspace_).out, expected));
  // The rows of `wide` are not aligned to 16 bytes.
  const at::Tensor wide = at::constant_pad_nd(fused.select(2, 0), {1, 2}).narrow(3, 1, 64);
  EXPECT_TRUE(at::equal(attend(wide, fused.select(2, 1), fused.select(2, 2), context, workspace_).out, expected));
}

TEST_F(AttendOnGpu, AppliesTheSamePrologueAsTheCpu) {
  using Norm = Prologue::Norm;
  const int64_t tokens = 300, text = 44, heads = 3;
  struct Kind {
    Norm norm;
    bool across, biased;
  };
  const std::vector<Kind> kinds = {{Norm::none, false, false}, {Norm::layer, false, true}, {Norm::layer, true, true},
                                   {Norm::rms, false, true},   {Norm::rms, true, true},    {Norm::rms, true, false}};
  enum class Rotary { none, neighbors, halves };
  for (const int64_t head_dim : {48, 64, 112}) {
    const Inputs centered = inputs(2, tokens, tokens, heads, head_dim);
    // If the norm counted lanes past head_dim, this mean of 2 and the biases would change every score.
    const Inputs shifted = {.q = rounded(centered.q + 2), .k = rounded(centered.k + 2), .v = centered.v};
    for (const auto& [norm, across, biased] : kinds) {
      for (const Rotary rotary : {Rotary::none, Rotary::neighbors, Rotary::halves}) {
        SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << ", norm " << static_cast<int>(norm)
                                          << (across ? " across heads" : "") << (biased ? "" : ", no bias")
                                          << ", rotary " << static_cast<int>(rotary));
        Context context{.text_tokens = text};
        Prologue& p = context.prologue;
        p.norm = norm;
        p.across_heads = across;
        p.interleaved = rotary == Rotary::neighbors;
        const int64_t size = across ? heads * head_dim : head_dim;
        if (norm != Norm::none) {
          p.q_weight = at::randn({size});
          p.k_weight = at::randn({size});
        }
        if (biased) {
          p.q_bias = at::randn({size}) * 0.5;
          p.k_bias = at::randn({size}) * 0.5;
        }
        const at::Tensor angles = at::rand({tokens - text, head_dim / 2}) * 6;
        const at::Tensor full = p.interleaved ? angles.repeat_interleave(2, 1) : at::cat({angles, angles}, 1);
        if (rotary != Rotary::none) {
          p.rotary_cos = full.cos();
          p.rotary_sin = full.sin();
        }
        const Inputs& x = norm == Norm::none ? centered : shifted;
        expect_quantized_near_exact(x, context);
        // In mode full, a kernel applies the prologue and rounds q and k. torch then computes attention from these
        // rounded numbers.
        context.mode = Mode::full;
        EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.02);
      }
    }
  }
}

TEST_F(AttendOnGpu, RotatesTextTokensToo) {
  const int64_t tokens = 700, text = 77, heads = 3;
  for (const int64_t head_dim : {64, 128}) {
    const Inputs x = inputs(2, tokens, tokens, heads, head_dim);
    Context context{.text_tokens = text};
    Prologue& p = context.prologue;
    p.norm = Prologue::Norm::rms;
    p.q_weight = at::randn({head_dim}), p.k_weight = at::randn({head_dim});
    const at::Tensor angles = (at::rand({tokens, head_dim / 2}) * 6).repeat_interleave(2, 1);
    p.rotary_cos = angles.cos(), p.rotary_sin = angles.sin();
    p.rotates_text = true;
    expect_quantized_near_exact(x, context);
    context.mode = Mode::full;
    EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.02);
  }
}

TEST_F(AttendOnGpu, AppliesSeparateTextWeightsAndAnglesPerHead) {
  for (const int64_t head_dim : {48, 64, 112, 128, 256})
    for (const int64_t text : {0, 77})
      for (const auto& [weights, angles] : {std::pair(true, true), {true, false}, {false, true}}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << ", " << text << " text tokens" << weights << angles);
        const int64_t tokens = 700, heads = 3;
        const Inputs x = inputs(2, tokens, tokens, heads, head_dim);
        Context context{.text_tokens = text};
        context.prologue = prologue_by_part(tokens - text, heads, head_dim, weights, angles);
        expect_quantized_near_exact(x, context);
        context.mode = Mode::full;
        EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.02);
      }
}

/// The selection must use q and k after the prologue, and so must the means of dropped blocks.
TEST_F(AttendOnGpu, MatchesAPrologueThatIsAppliedBeforehand) {
  const int64_t tokens = 3000, text = 40, heads = 2, head_dim = 128;
  const Inputs x = inputs(1, tokens, tokens, heads, head_dim);
  Context context{.mode = Mode::sparse, .text_tokens = text};
  context.policy.defaults.topk = 0.3;
  context.prologue = prologue_by_part(tokens - text, heads, head_dim, true, true);
  const QueriesAndKeys before = apply_prologue(context.prologue, x.q, x.k, text);
  Context plain = context;
  plain.prologue = {};
  const Result inside = on_gpu(x, context), outside = on_gpu({before.q, before.k, x.v}, plain);
  EXPECT_LT(compare(inside.out, outside.out.cpu().to(at::kFloat)).relative_l1, 0.05);
  EXPECT_NEAR(inside.statistics.sparsity(), outside.statistics.sparsity(), 0.01);
}

TEST_F(AttendOnGpu, GivesTheSameBitsInRepeatedCalls) {
  const Inputs x = inputs(2, 1111, 1111, 3, 64);
  Context context{.mode = Mode::sparse, .text_tokens = 50};
  const at::Tensor first = on_gpu(x, context).out;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(at::equal(on_gpu(x, context).out, first));
}

TEST_F(AttendOnGpu, ReportsTheErrorAgainstFullAttentionInCheckMode) {
  Context context{.mode = Mode::check};
  context.policy.defaults.topk = 0.2;
  const Result result = on_gpu(inputs(1, 2000, 2000, 2, 64), context);
  EXPECT_GT(result.statistics.max_relative_l1, 0.05);
  EXPECT_GT(result.statistics.sparsity(), 0.7);
}

TEST_F(AttendOnGpu, RunsFullAttentionForSparseCallsTooShortToGain) {
  if (std::getenv("SPARSEREEL_ATTENTION_KERNEL") != nullptr) GTEST_SKIP() << "a kernel is forced";
  const auto gpu = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor shorter = at::randn({1, 1000, 4, 64}, gpu), longer = at::randn({1, 8000, 4, 64}, gpu);
  const Context sparse{.mode = Mode::sparse};
  const Result full = attend(shorter, shorter, shorter, sparse, workspace_);
  EXPECT_THAT(full.kernel, ::testing::AllOf(::testing::HasSubstr("torch sdpa"), ::testing::HasSubstr("short")));
  EXPECT_EQ(full.statistics.sparsity(), 0);
  EXPECT_TRUE(at::equal(full.out, attend(shorter, shorter, shorter, {.mode = Mode::full}, workspace_).out));
  EXPECT_THAT(attend(longer, longer, longer, sparse, workspace_).kernel, ::testing::HasSubstr("cuda int8"));
}

TEST_F(AttendOnGpu, AcceptsMoreHeadsThanOneGridDimensionHolds) {
  const auto gpu = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor q = at::randn({700, 64, 100, 16}, gpu);
  const Result result = attend(q, q, q, {.mode = Mode::quantized}, workspace_);
  const at::Tensor expected = attend(q, q, q, {.mode = Mode::full}, workspace_).out;
  EXPECT_LT(compare(result.out, expected.cpu()).relative_l1, 0.06);
}

TEST_F(AttendOnGpu, GathersTokensAsIndexSelectDoes) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t channels : {1, 8, 64, 100}) {
      const at::Tensor x = at::randn({2, 500, channels * 3}, at::TensorOptions().device(at::kCUDA).dtype(dtype));
      const at::Tensor part = x.narrow(2, channels, channels);
      const at::Tensor index = at::randperm(500, at::kLong).narrow(0, 0, 301).to(at::kCUDA);
      EXPECT_TRUE(at::equal(gather_tokens(part, index), part.index_select(1, index))) << channels;
    }
  }
}

TEST_F(AttendOnGpu, LeaksNoMemoryInAThousandMixedCalls) {
  const auto gpu = at::TensorOptions().device(at::kCUDA).dtype(at::kHalf);
  uint64_t free_before = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t tokens = 1 + i * 37 % 700, head_dim = 16 + i % 5 * 48, heads = 1 + i % 3;
    const at::Tensor q = at::randn({1, tokens, heads, head_dim}, gpu);
    Context context{.mode = i % 2 == 0 ? Mode::sparse : Mode::quantized, .causal = i % 7 == 0};
    context.policy.dense_operations = 0;
    const Result result = attend(q, q, q, context, workspace_);
    if (i % 100 == 0) {
      EXPECT_TRUE(at::isfinite(result.out).all().item<bool>()) << i;
    }
    if (i == 100) free_before = models::free_memory(at::kCUDA);
  }
  EXPECT_NEAR(static_cast<double>(models::free_memory(at::kCUDA)), static_cast<double>(free_before), 64e6);
}

TEST_F(AttendOnGpu, RefusesFp32) {
  const at::Tensor q = at::randn({1, 64, 1, 64}, at::TensorOptions().device(at::kCUDA));
  EXPECT_THROW(attend(q, q, q, {.mode = Mode::sparse}, workspace_), Error);
}

}  // namespace
}  // namespace sparsereel::attention
