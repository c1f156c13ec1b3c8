// attend() on a GPU against the CPU's exact attention on the same inputs; skips itself, visibly, where there is no GPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numbers>
#include <tuple>
#include <vector>

#include "attention/attention.h"
#include "attention/token_gather.h"
#include "hilbert/error.h"
#include "models/device.h"

namespace sparsereel::attention {
namespace {

struct Inputs {
  at::Tensor q, k, v;  // CPU fp32, exactly representable in the dtype of the test
};

struct Errors {
  double relative_l1, cosine;
};

Errors compare(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.to(at::kCPU, at::kDouble), e = expected.to(at::kDouble);
  return {.relative_l1 = ((a - e).abs().sum() / e.abs().sum()).item<double>(),
          .cosine = ((a * e).sum() / (a.norm() * e.norm())).item<double>()};
}

class AttendOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!models::cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    at::manual_seed(1);
  }

  /// As what `dtype` can hold, in fp32.
  static at::Tensor rounded(const at::Tensor& x, at::ScalarType dtype = at::kBFloat16) {
    return x.to(dtype).to(at::kFloat);
  }

  /// Normal data with a mean in K and in V that every key of a head shares, as real ones have.
  static Inputs inputs(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t head_dim,
                       at::ScalarType dtype = at::kBFloat16) {
    const at::Tensor key_mean = at::randn({1, 1, heads, head_dim}),
                     value_mean = at::randn({1, 1, heads, head_dim}) * 0.3;
    return {.q = rounded(at::randn({batch, queries, heads, head_dim}), dtype),
            .k = rounded(at::randn({batch, keys, heads, head_dim}) + key_mean, dtype),
            .v = rounded(at::randn({batch, keys, heads, head_dim}) + value_mean, dtype)};
  }

  Result on_gpu(const Inputs& x, Context context, at::ScalarType dtype = at::kBFloat16) {
    const auto move = [dtype](const at::Tensor& t) { return t.defined() ? t.to(at::kCUDA, dtype) : t; };
    context.prologue = on_device(context.prologue);
    context.policy.dense_operations = 0;  // the kernels, however short the sequence
    Result result = attend(move(x.q), move(x.k), move(x.v), context, workspace_);
    std::vector<Statistics> layers(1);
    collect_counts(workspace_, layers);
    result.statistics += layers[static_cast<size_t>(context.layer)];
    return result;
  }

  static Prologue on_device(Prologue p) {
    for (at::Tensor* t : {&p.q_weight, &p.q_bias, &p.k_weight, &p.k_bias, &p.rotary_cos, &p.rotary_sin})
      if (t->defined()) *t = t->to(at::kCUDA);
    return p;
  }

  /// Exact attention over the same blocks on the CPU.
  static Result exact(const Inputs& x, Context context) {
    Workspace workspace;
    if (context.mode == Mode::quantized) context.mode = Mode::full;
    context.policy.defaults.pv_threshold = 32;
    return attend(x.q, x.k, x.v, context, workspace);
  }

  void expect_quantized_near_exact(const Inputs& x, Context context = {}, at::ScalarType dtype = at::kBFloat16,
                                   double bound = 0.06) {
    context.mode = Mode::quantized;
    context.return_lse = true;
    const Result gpu = on_gpu(x, context, dtype), cpu = exact(x, context);
    const Errors errors = compare(gpu.out, cpu.out);
    EXPECT_LT(errors.relative_l1, bound);
    EXPECT_GT(errors.cosine, 0.998);
    const at::Tensor finite = at::isfinite(cpu.lse);
    EXPECT_TRUE(at::equal(at::isfinite(gpu.lse.cpu()), finite));
    const at::Tensor lse_error = (gpu.lse.cpu() - cpu.lse).masked_select(finite).abs();
    if (lse_error.numel() > 0) {
      EXPECT_LT(lse_error.max().item<double>(), 0.05);
    }
    EXPECT_EQ(gpu.statistics.kept_blocks, gpu.statistics.total_blocks);
    // Where a single head_dim or token goes wrong the mean hides it.
    EXPECT_LT((gpu.out.cpu().to(at::kFloat) - cpu.out).abs().max().item<double>(), 0.6);
  }

  void expect_harmless_skips(const Inputs& x) {
    Context context{.mode = Mode::sparse};
    context.policy.defaults.topk = 1;
    context.policy.defaults.pv_threshold = 10;
    const Result gpu = on_gpu(x, context);
    EXPECT_GT(gpu.statistics.skipped_pv_blocks, 0);
    EXPECT_LT(gpu.statistics.skipped_pv_blocks, gpu.statistics.kept_blocks);
    EXPECT_LT(compare(gpu.out, exact(x, context).out).relative_l1, 0.08);
  }

  Workspace workspace_;
};

TEST_F(AttendOnGpu, QuantizedIsNearFullAtEverySequenceLength) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 1000, 2336}) {
    SCOPED_TRACE(tokens);
    expect_quantized_near_exact(inputs(1, tokens, tokens, 2, 64));
    expect_quantized_near_exact(inputs(1, tokens, tokens, 2, 128));
  }
}

// Long lists and few tiles: with 132 multiprocessors every tile is computed in parts, of the largest case 30 beside 132
// whole ones.
TEST_F(AttendOnGpu, TilesInPartsAreNearFull) {
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

TEST_F(AttendOnGpu, QuantizedIsNearFullAtEveryHeadDim) {
  for (const int64_t head_dim : {16, 20, 32, 40, 64, 72, 80, 96, 127, 128, 160, 192, 256}) {
    SCOPED_TRACE(head_dim);
    expect_quantized_near_exact(inputs(2, 300, 300, 3, head_dim, at::kHalf), {}, at::kHalf);
  }
}

TEST_F(AttendOnGpu, QueriesAndKeysMayDifferInNumber) {
  expect_quantized_near_exact(inputs(2, 77, 500, 2, 64));
  expect_quantized_near_exact(inputs(2, 500, 77, 2, 128));
}

TEST_F(AttendOnGpu, CausalMasksInsideTheDiagonalBlocks) {
  for (const auto& [queries, keys] : {std::pair{500, 500}, {100, 500}, {500, 100}, {64, 64}, {1, 130}}) {
    SCOPED_TRACE(queries);
    for (const int64_t head_dim : {64, 128, 192}) {
      SCOPED_TRACE(head_dim);
      expect_quantized_near_exact(inputs(1, queries, keys, 2, head_dim), {.causal = true}, at::kBFloat16, 0.07);
    }
  }
}

TEST_F(AttendOnGpu, KeyLengthsHidePadding) {
  for (const bool causal : {false, true}) {
    Context context{.causal = causal, .key_lengths = at::tensor({300, 65, 0, 1}, at::kLong)};
    for (const int64_t head_dim : {64, 128, 256}) {
      SCOPED_TRACE(head_dim);
      Inputs x = inputs(4, 300, 300, 2, head_dim);
      x.v.select(0, 1).narrow(0, 65, 235).fill_(1000);  // padding must not show
      expect_quantized_near_exact(x, context);
    }
  }
}

TEST_F(AttendOnGpu, ACallersBlockMapIsObeyed) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    const Inputs x = inputs(2, 700, 700, 2, head_dim);
    BlockMap map(2, 2, 11, 11, false);
    const at::Tensor random = at::rand({static_cast<int64_t>(map.bits.size())});
    for (size_t i = 0; i < map.bits.size(); ++i)
      map.bits[i] = random[static_cast<int64_t>(i)].item<double>() < 0.4 ? 1 : 0;
    for (int64_t j = 0; j < 11; ++j) map.row(0, 0, 3)[j] = 0;  // rows of queries without any key
    Context context{.mode = Mode::sparse, .block_map = map, .return_lse = true};
    context.policy.defaults.pv_threshold = 32;
    const Result gpu = on_gpu(x, context), cpu = exact(x, context);
    const Errors errors = compare(gpu.out, cpu.out);
    EXPECT_LT(errors.relative_l1, 0.06);
    EXPECT_EQ(gpu.statistics.kept_blocks, cpu.statistics.kept_blocks);
    EXPECT_EQ(gpu.out.cpu().select(0, 0).narrow(0, 192, 64).select(1, 0).abs().max().item<double>(), 0.0);
    EXPECT_TRUE(at::equal(at::isinf(gpu.lse.cpu()), at::isinf(cpu.lse)));
  }
}

TEST_F(AttendOnGpu, TopkKeepsAsManyBlocksAsOnTheCpu) {
  const Inputs x = inputs(1, 640, 640, 2, 64);  // ten blocks, of which 0.7 are seven: not so in fp32
  for (const double topk : {0.3, 0.35, 0.7, 0.9}) {
    SCOPED_TRACE(topk);
    Context context{.mode = Mode::sparse};
    context.policy.selection_rows = 64;
    context.policy.defaults.topk = topk;
    context.policy.defaults.pv_threshold = 32;
    EXPECT_EQ(on_gpu(x, context).statistics.kept_blocks, exact(x, context).statistics.kept_blocks);
  }
}

TEST_F(AttendOnGpu, SelectionKeepsTheBlocksThatTheCpuKeeps) {
  for (const int64_t rows : {64, 128, 192}) {
    for (const auto selection : {Selection::topk, Selection::cdf}) {
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(rows);
        // Clusters of similar tokens give the selection something to find.
        Inputs x = inputs(1, 1500, 1500, 2, 64);
        const at::Tensor centres =
            (at::randn({24, 1, 2, 64}) * 2).expand({24, 64, 2, 64}).reshape({1, 1536, 2, 64}).narrow(1, 0, 1500);
        x.q = rounded(x.q + centres);
        x.k = rounded(x.k + centres);
        Context context{.mode = Mode::sparse, .text_tokens = 100, .causal = causal};
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

TEST_F(AttendOnGpu, AnyStridesWithContiguousHeadDimWork) {
  const Inputs x = inputs(2, 260, 260, 3, 64);
  const at::Tensor fused = at::stack({x.q, x.k, x.v}, 2).to(at::kCUDA, at::kBFloat16);  // [B, N, 3, H, D]
  const at::Tensor heads_first = x.q.transpose(1, 2).contiguous().transpose(1, 2).to(at::kCUDA, at::kBFloat16);
  const Context context{.mode = Mode::quantized};
  const at::Tensor expected = on_gpu(x, context).out;
  EXPECT_TRUE(
      at::equal(attend(fused.select(2, 0), fused.select(2, 1), fused.select(2, 2), context, workspace_).out, expected));
  EXPECT_TRUE(
      at::equal(attend(heads_first, fused.select(2, 1), fused.select(2, 2), context, workspace_).out, expected));
  const at::Tensor wide = at::constant_pad_nd(fused.select(2, 0), {1, 2}).narrow(3, 1, 64);  // rows off 16 bytes
  EXPECT_TRUE(at::equal(attend(wide, fused.select(2, 1), fused.select(2, 2), context, workspace_).out, expected));
}

TEST_F(AttendOnGpu, PrologueIsThatOfTheCpu) {
  using Norm = Prologue::Norm;
  const int64_t tokens = 300, text = 44, heads = 3;
  const std::vector<std::tuple<Norm, bool>> norms = {
      {Norm::none, false}, {Norm::layer, false}, {Norm::layer, true}, {Norm::rms, false}, {Norm::rms, true}};
  enum class Rotary { none, neighbours, halves };
  for (const int64_t head_dim : {48, 64, 112}) {
    const Inputs centred = inputs(2, tokens, tokens, heads, head_dim);
    // With these means, and biases of a half, a lane past head_dim that a norm counts would change every score.
    const Inputs shifted = {.q = rounded(centred.q + 2), .k = rounded(centred.k + 2), .v = centred.v};
    for (const auto& [norm, across] : norms) {
      for (const Rotary rotary : {Rotary::none, Rotary::neighbours, Rotary::halves}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << ", norm " << static_cast<int>(norm)
                     << (across ? " across heads" : "") << ", rotary " << static_cast<int>(rotary));
        Context context{.text_tokens = text};
        Prologue& p = context.prologue;
        p.norm = norm;
        p.across_heads = across;
        p.interleaved = rotary == Rotary::neighbours;
        const int64_t size = across ? heads * head_dim : head_dim;
        if (norm != Norm::none) {
          p.q_weight = at::randn({size});
          p.k_weight = at::randn({size});
          p.q_bias = at::randn({size}) * 0.5;
          p.k_bias = at::randn({size}) * 0.5;
        }
        const at::Tensor angles = at::rand({tokens - text, head_dim / 2}) * 6;
        const at::Tensor full = p.interleaved ? angles.repeat_interleave(2, 1) : at::cat({angles, angles}, 1);
        if (rotary != Rotary::none) {
          p.rotary_cos = full.cos();
          p.rotary_sin = full.sin();
        }
        expect_quantized_near_exact(norm == Norm::none ? centred : shifted, context);
      }
    }
  }
}

TEST_F(AttendOnGpu, PvSkipLeavesOutOnlyWhatHardlyCounts) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    Inputs x = inputs(1, 960, 960, 2, head_dim);
    x.q = x.q * 2;
    x.k.narrow(1, 0, 128).mul_(6);  // the first blocks hold the maxima, so later ones can be skipped
    x.q = rounded(x.q);
    x.k = rounded(x.k);
    expect_harmless_skips(x);
  }
}

TEST_F(AttendOnGpu, PvSkipGoesWithLongLists) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    Inputs x = inputs(1, 200, 9000, 1, head_dim);
    x.q = rounded(x.q + 1);
    x.k.narrow(1, 0, 128).add_(1.5);  // of all rows the maxima
    x.k = rounded(x.k);
    expect_harmless_skips(x);
  }
}

TEST_F(AttendOnGpu, LargeScoresAndOutliersStayFinite) {
  Inputs x = inputs(1, 400, 400, 2, 64);
  x.q = rounded(x.q * 20);
  x.k = rounded(x.k * 20);
  x.v.select(3, 5).mul_(300);
  x.v = rounded(x.v);
  const Context context{.mode = Mode::quantized};
  const Result gpu = on_gpu(x, context);
  EXPECT_TRUE(at::isfinite(gpu.out).all().item<bool>());
  Workspace workspace;  // int8 itself errs here, so the comparison is with the same arithmetic on the CPU
  EXPECT_GT(compare(gpu.out, attend(x.q, x.k, x.v, context, workspace).out).cosine, 0.99);
  Inputs unseen = inputs(1, 200, 2048, 1, 64);  // a channel that is 0 wherever the statistics look
  unseen.v.select(3, 7).slice(1, 0, 2048, 4).fill_(0);
  EXPECT_TRUE(at::isfinite(on_gpu(unseen, context).out).all().item<bool>());
  Inputs equal = inputs(1, 200, 200, 1, 128);
  equal.k.fill_(0.5);
  expect_quantized_near_exact(equal);
}

// What the linear exponentials stand as they are, what they stand with a clamp, and beyond (hopper_softmax.cuh).
TEST_F(AttendOnGpu, ScoresOfEveryRangeGiveWhatTheCpuGives) {
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

// A row's maximum may be as far below zero as the largest score is above it.
TEST_F(AttendOnGpu, RowsWhoseScoresAreAllFarBelowZeroKeepTheirWeights) {
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
    context.policy.defaults.pv_threshold = 32;
    EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.1);
  }
}

// A channel without any spread, and a value that is twice as far from its block's mean as the largest is from zero.
TEST_F(AttendOnGpu, ConstantAndTwoSidedValuesComeThrough) {
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
  x.k.select(1, 7).fill_(4);  // all attend to the one value that its block's mean is far from
  x.q.fill_(4);
  EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.06);
}

// Thousands of products of one sign: an accumulator that truncates them falls behind by more than a percent.
TEST_F(AttendOnGpu, ValuesThatChangeSlowlyAlongTheTokensStayExact) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    Inputs x = inputs(1, 192, 16384, 2, head_dim);
    const at::Tensor phase = at::arange(16384).view({1, -1, 1, 1}) / 9000 + at::rand({1, 1, 2, head_dim});
    x.v = rounded(at::sin(phase * (2 * std::numbers::pi)) + 0.2 * at::randn_like(x.v));
    const Context context{.mode = Mode::quantized};
    EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.008);
  }
}

TEST_F(AttendOnGpu, RepeatedCallsGiveTheSameBits) {
  const Inputs x = inputs(2, 1111, 1111, 3, 64);
  Context context{.mode = Mode::sparse, .text_tokens = 50};
  const at::Tensor first = on_gpu(x, context).out;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(at::equal(on_gpu(x, context).out, first));
}

TEST_F(AttendOnGpu, CheckReportsTheErrorAgainstFullAttention) {
  Context context{.mode = Mode::check};
  context.policy.defaults.topk = 0.2;
  const Result result = on_gpu(inputs(1, 2000, 2000, 2, 64), context);
  EXPECT_GT(result.statistics.max_relative_l1, 0.05);
  EXPECT_GT(result.statistics.sparsity(), 0.7);
}

TEST_F(AttendOnGpu, SparseCallsTooShortToPayRunFull) {
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

TEST_F(AttendOnGpu, ManyHeadsExceedNoGrid) {
  const auto gpu = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor q = at::randn({700, 64, 100, 16}, gpu);
  const Result result = attend(q, q, q, {.mode = Mode::quantized}, workspace_);
  const at::Tensor expected = attend(q, q, q, {.mode = Mode::full}, workspace_).out;
  EXPECT_LT(compare(result.out, expected.cpu()).relative_l1, 0.06);
}

TEST_F(AttendOnGpu, GatherIsIndexSelect) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    for (const int64_t channels : {1, 8, 64, 100}) {
      const at::Tensor x = at::randn({2, 500, channels * 3}, at::TensorOptions().device(at::kCUDA).dtype(dtype));
      const at::Tensor part = x.narrow(2, channels, channels);
      const at::Tensor index = at::randperm(500, at::kLong).narrow(0, 0, 301).to(at::kCUDA);
      EXPECT_TRUE(at::equal(gather_tokens(part, index), part.index_select(1, index))) << channels;
    }
  }
}

TEST_F(AttendOnGpu, AThousandMixedCallsLeakNothing) {
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

TEST_F(AttendOnGpu, Fp32IsRefused) {
  const at::Tensor q = at::randn({1, 64, 1, 64}, at::TensorOptions().device(at::kCUDA));
  EXPECT_THROW(attend(q, q, q, {.mode = Mode::sparse}, workspace_), Error);
}

}  // namespace
}  // namespace sparsereel::attention
