// Tests 16-bit attention on a GPU against exact attention on the CPU. Errors must be as small as the dtype allows, and
// the kernels must choose the same blocks as 8-bit attention.
#include <gmock/gmock.h>

#include <limits>

#include "hilbert/error.h"
#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::attention {
namespace {

using ::testing::HasSubstr;

class SixteenBitsOnGpu : public AttendOnGpu {
 protected:
  /// Returns the largest relative L1 error that is allowed. Rounding P, the means and the output to `dtype` stays below
  /// it; 8-bit arithmetic, with an error of about 0.04, does not.
  static double bound_of(at::ScalarType dtype) { return dtype == at::kHalf ? 0.001 : 0.007; }

  /// Returns a context of 16-bit sparse attention in which means replace dropped blocks.
  static Context sixteen(double topk = 0.3, Ranking ranking = Ranking::error) {
    Context context{.mode = Mode::sparse};
    context.policy.arithmetic = 16;
    context.policy.ranking = ranking;
    context.policy.defaults.topk = topk;
    return context;
  }
  static Context every_block() {
    Context context = sixteen();
    context.policy.dense = true;
    return context;
  }

  static BlockMap random_map(const Inputs& x, double kept) {
    BlockMap map(x.q.size(0), x.q.size(2), blocks_of(x.q.size(1)), blocks_of(x.k.size(1)), false);
    const at::Tensor random = at::rand({static_cast<int64_t>(map.bits.size())});
    for (size_t i = 0; i < map.bits.size(); ++i)
      map.bits[i] = random[static_cast<int64_t>(i)].item<double>() < kept ? 1 : 0;
    return map;
  }

  /// Compares the result with exact attention on the CPU over the same blocks: all blocks, or the blocks of the
  /// context's map.
  void expect_near_exact(const Inputs& x, Context context, at::ScalarType dtype = at::kBFloat16, double bound = 0) {
    context.return_lse = true;
    const Result gpu = on_gpu(x, context, dtype), cpu = exact(x, context);
    EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, bound > 0 ? bound : bound_of(dtype));
    EXPECT_EQ(gpu.statistics.kept_blocks, cpu.statistics.kept_blocks);
    const at::Tensor finite = at::isfinite(cpu.lse);
    EXPECT_TRUE(at::equal(at::isfinite(gpu.lse.cpu()), finite));
    const at::Tensor lse_error = (gpu.lse.cpu() - cpu.lse).masked_select(finite).abs();
    if (lse_error.numel() > 0) {
      EXPECT_LT(lse_error.max().item<double>(), 0.02);
    }
    // The relative error is a mean, which would hide a single wrong channel or token.
    EXPECT_LT((gpu.out.cpu().to(at::kFloat) - cpu.out).abs().max().item<double>(), 0.06);
  }

  void expect_map_obeyed(const Inputs& x, Context context, double kept) {
    context.block_map = random_map(x, kept);
    expect_near_exact(x, context);
  }
};

TEST_F(SixteenBitsOnGpu, StayNearFullAttentionAtEverySequenceLength) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 1000, 2336}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      SCOPED_TRACE(::testing::Message() << tokens << " tokens, head_dim " << head_dim);
      expect_near_exact(inputs(1, tokens, tokens, 2, head_dim), every_block());
    }
  }
}

TEST_F(SixteenBitsOnGpu, StayNearFullAttentionAtEveryHeadDimInBothTypes) {
  for (const int64_t head_dim : {16, 20, 32, 40, 64, 72, 80, 96, 127, 128, 160, 192, 256}) {
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << head_dim << " " << dtype);
      expect_near_exact(inputs(2, 300, 300, 3, head_dim, dtype), every_block(), dtype);
    }
  }
}

TEST_F(SixteenBitsOnGpu, AcceptDifferentNumbersOfQueriesAndKeys) {
  expect_near_exact(inputs(2, 77, 500, 2, 64), every_block());
  expect_near_exact(inputs(2, 500, 77, 2, 128), every_block());
}

TEST_F(SixteenBitsOnGpu, ApplyCausalMasksInsideTheDiagonalBlocks) {
  for (const auto& [queries, keys] : {std::pair{500, 500}, {100, 500}, {500, 100}, {64, 64}, {1, 130}}) {
    for (const int64_t head_dim : {64, 128, 192}) {
      SCOPED_TRACE(::testing::Message() << queries << " x " << keys << ", " << head_dim);
      Context context = every_block();
      context.causal = true;
      expect_near_exact(inputs(1, queries, keys, 2, head_dim), context);
    }
  }
}

TEST_F(SixteenBitsOnGpu, HidePaddingByKeyLengths) {
  for (const bool causal : {false, true}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      SCOPED_TRACE(head_dim);
      Context context = every_block();
      context.causal = causal;
      context.key_lengths = at::tensor({300, 65, 0, 1}, at::kLong);
      Inputs x = inputs(4, 300, 300, 2, head_dim);
      expect_near_exact(x, context);
      const at::Tensor out = on_gpu(x, context).out;
      // K and V of padding are NaN, so that any effect of them would be seen.
      const double nan = std::numeric_limits<double>::quiet_NaN();
      for (const at::Tensor& t : {x.k, x.v}) t.select(0, 1).narrow(0, 65, 235).fill_(nan);
      EXPECT_TRUE(at::equal(on_gpu(x, context).out, out));
    }
  }
}

TEST_F(SixteenBitsOnGpu, ObeyTheMapOfTheCallerWithAndWithoutMeans) {
  for (const int64_t head_dim : {16, 64, 96, 128, 256}) {
    SCOPED_TRACE(head_dim);
    const Inputs x = video(2, 700, 2100, 2, head_dim);
    expect_map_obeyed(x, sixteen(), 0.3);
    expect_map_obeyed(x, sixteen(), 0.0);
    Context dropping = sixteen(0.5, Ranking::mass);
    dropping.policy.dropped = Dropped::none;
    expect_map_obeyed(x, dropping, 0.3);
  }
}

TEST_F(SixteenBitsOnGpu, ObeyTextKeyLengthsAndCausalMasks) {
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(::testing::Message() << head_dim << (causal ? " causal" : ""));
      Context context = sixteen();
      context.causal = causal;
      context.text_tokens = 70;
      expect_map_obeyed(video(1, 1300, 1300, 2, head_dim), context, 0.4);
      context.text_tokens = 0;
      context.key_lengths = at::tensor({1200, 65, 1025}, at::kLong);
      Inputs x = video(3, 1200, 1200, 2, head_dim);
      // V of padding is large, so that any effect of it would be seen.
      x.v.select(0, 1).narrow(0, 65, 1135).fill_(1000);
      expect_map_obeyed(x, context, 0.4);
    }
  }
}

TEST_F(SixteenBitsOnGpu, SelectAlmostTheSameBlocksAsEightBits) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t rows : {64, 128, 192}) {
      for (const int64_t text : {0, 100}) {
        for (const bool causal : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << head_dim << ", rows " << rows << ", text " << text << (causal ? ", causal" : ""));
          const Inputs x = video(1, 3000, 3000, 2, head_dim);
          Context context = sixteen(0.25);
          context.text_tokens = text;
          context.causal = causal;
          context.policy.selection_rows = rows;
          const Result ours = on_gpu(x, context), cpu = exact(x, context);
          context.policy.arithmetic = 8;
          const Result eight = on_gpu(x, context);
          EXPECT_NEAR(static_cast<double>(ours.statistics.kept_blocks),
                      static_cast<double>(eight.statistics.kept_blocks),
                      0.005 * static_cast<double>(eight.statistics.total_blocks));
          EXPECT_GT(ours.statistics.sparsity(), 0.5);
          // A few blocks with errors near the threshold are chosen by only one of GPU and CPU.
          EXPECT_LT(compare(ours.out, cpu.out).relative_l1, 0.02);
          EXPECT_LT(2 * compare(ours.out, cpu.out).relative_l1, compare(eight.out, cpu.out).relative_l1);
        }
      }
    }
  }
}

TEST_F(SixteenBitsOnGpu, SelectAsManyBlocksAsEightBitsWithoutMeans) {
  const Inputs x = video(2, 3000, 3000, 2, 64);
  for (const auto selection : {Selection::topk, Selection::cdf}) {
    Context context = sixteen(0.3, Ranking::mass);
    context.policy.dropped = Dropped::none;
    context.policy.defaults.selection = selection;
    context.policy.defaults.cdf = 0.8;
    context.policy.defaults.similarity = 0.2;
    const Result ours = on_gpu(x, context);
    EXPECT_LT(compare(ours.out, exact(x, context).out).relative_l1, 0.03);
    context.policy.arithmetic = 8;
    EXPECT_EQ(ours.statistics.kept_blocks, on_gpu(x, context).statistics.kept_blocks);
  }
}

TEST_F(SixteenBitsOnGpu, KeepAnErrorBoundAndPredictItAsTheCpuDoes) {
  const Inputs x = video(1, 3000, 3000, 2, 64);
  Context context = sixteen();
  context.policy.defaults.selection = Selection::error;
  context.policy.defaults.error = 0.1;
  const Result bound = on_gpu(x, context), cpu = exact(x, context);
  EXPECT_NEAR(bound.statistics.sparsity(), cpu.statistics.sparsity(), 0.02);
  EXPECT_NEAR(bound.statistics.predicted_error(), cpu.statistics.predicted_error(), 0.005);
  context = sixteen(0.2);
  context.mode = Mode::check;
  const Result checked = on_gpu(x, context);
  EXPECT_NEAR(checked.statistics.predicted_error(), exact(x, context).statistics.predicted_error(),
              0.02 * checked.statistics.predicted_error());
  EXPECT_GT(checked.statistics.mean_relative_l1(), 0);
}

TEST_F(SixteenBitsOnGpu, KeepABlockErrorBoundAsTheCpuDoes) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    const Inputs x = video(1, 3000, 3000, 2, head_dim);
    Context context = sixteen();
    context.policy.defaults.selection = Selection::block_error;
    context.policy.defaults.block_error = 0.02;
    const Result ours = on_gpu(x, context), cpu = exact(x, context);
    EXPECT_GT(cpu.statistics.sparsity(), 0.1);
    EXPECT_LT(cpu.statistics.sparsity(), 0.95);
    EXPECT_NEAR(ours.statistics.sparsity(), cpu.statistics.sparsity(), 0.01);
    EXPECT_LT(compare(ours.out, cpu.out).relative_l1, 0.03);
  }
}

TEST_F(SixteenBitsOnGpu, SkipOnlyNegligibleProducts) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    Inputs x = inputs(1, 960, 960, 2, head_dim);
    x.q = rounded(x.q * 2);
    x.k.narrow(1, 0, 128).mul_(6);  // the first blocks have the largest scores, so P.V of later ones can be skipped
    x.k = rounded(x.k);
    Context context = sixteen(0.5, Ranking::mass);
    context.policy.dropped = Dropped::none;
    expect_harmless_skips(x, context, 0.02);
  }
}

TEST_F(SixteenBitsOnGpu, ApplyTheSamePrologueAsTheCpu) {
  using Norm = Prologue::Norm;
  const int64_t tokens = 300, text = 44, heads = 3;
  for (const int64_t head_dim : {48, 64, 128}) {
    for (const bool across : {false, true}) {
      for (const auto norm : {Norm::none, Norm::layer, Norm::rms}) {
        for (const bool interleaved : {true, false}) {
          SCOPED_TRACE(::testing::Message() << head_dim << (across ? " across heads, norm " : ", norm ")
                                            << static_cast<int>(norm) << (interleaved ? " neighbours" : " halves"));
          Context context = every_block();
          context.text_tokens = text;
          Prologue& p = context.prologue;
          p.norm = norm;
          p.across_heads = across;
          p.interleaved = interleaved;
          const int64_t size = across ? heads * head_dim : head_dim;
          if (norm != Norm::none) {
            p.q_weight = at::rand({size}) + 0.5;
            p.k_weight = at::rand({size}) + 0.5;
            p.q_bias = at::randn({size}) * 0.2;
            p.k_bias = at::randn({size}) * 0.2;
          }
          const at::Tensor angles = at::rand({tokens - text, head_dim / 2}) * 6;
          const at::Tensor full = interleaved ? angles.repeat_interleave(2, 1) : at::cat({angles, angles}, 1);
          p.rotary_cos = full.cos();
          p.rotary_sin = full.sin();
          expect_near_exact(inputs(2, tokens, tokens, heads, head_dim, at::kHalf), context, at::kHalf, 0.003);
        }
      }
    }
  }
}

TEST_F(SixteenBitsOnGpu, ShareHeadsOfKeysAndValues) {
  const int64_t tokens = 1500, group = 3;
  Inputs x = video(2, tokens, tokens, 2 * group, 64), all = x;
  x.k = x.k.narrow(2, 0, 2).clone();
  x.v = x.v.narrow(2, 0, 2).clone();
  all.k = x.k.repeat_interleave(group, 2);
  all.v = x.v.repeat_interleave(group, 2);
  expect_near_exact(x, every_block());
  Context context = sixteen();
  EXPECT_LT(compare(on_gpu(x, context).out, on_gpu(all, context).out.cpu().to(at::kFloat)).relative_l1, 0.06);
}

TEST_F(SixteenBitsOnGpu, ApplySeparateTextWeightsAndAnglesPerHead) {
  const int64_t tokens = 700, text = 77, heads = 3;
  for (const int64_t head_dim : {64, 128}) {
    Context context = every_block();
    context.text_tokens = text;
    context.prologue = prologue_by_part(tokens - text, heads, head_dim, true, true);
    expect_near_exact(inputs(2, tokens, tokens, heads, head_dim), context, at::kBFloat16, 0.02);
  }
}

TEST_F(SixteenBitsOnGpu, ComputeMeansAfterThePrologue) {
  const Inputs x = video(1, 1500, 1500, 2, 64);
  Context context = sixteen();
  context.prologue.norm = Prologue::Norm::rms;
  context.prologue.q_weight = at::rand({64}) + 0.5;
  context.prologue.k_weight = at::rand({64}) + 0.5;
  expect_map_obeyed(x, context, 0.2);
}

TEST_F(SixteenBitsOnGpu, HandleSharpScoresAndLargeValues) {
  for (const double gain : {3.0, 12.0, 100.0}) {
    for (const double size : {1e-4, 1.0, 1e4}) {
      SCOPED_TRACE(::testing::Message() << "scores x " << gain << ", values x " << size);
      Inputs x = video(1, 1000, 2000, 2, 64);
      x.q = rounded(x.q * gain);
      x.v = rounded(x.v * size);
      Context context = every_block();
      const Result gpu = on_gpu(x, context), cpu = exact(x, context);
      EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, bound_of(at::kBFloat16));
    }
  }
}

TEST_F(SixteenBitsOnGpu, GiveTheMeanOfVForConstantInputs) {
  // With values of 1e4, scores reach 1e8. There fp32 numbers differ by 8 or more, too much for exp(score).
  for (const double value : {0.0, 1e-4, 0.5, 100.0}) {
    SCOPED_TRACE(value);
    expect_mean_of_v(value, sixteen(0.1), 0.005);
  }
}

TEST_F(SixteenBitsOnGpu, GiveTheSameBitsWithAnyStridesAndContiguousHeadDim) {
  const Inputs x = video(2, 1260, 1260, 3, 64);
  const at::Tensor fused = at::stack({x.q, x.k, x.v}, 2).to(at::kCUDA, at::kBFloat16);  // [B, N, 3, H, D]
  const at::Tensor heads_first = x.k.transpose(1, 2).contiguous().transpose(1, 2).to(at::kCUDA, at::kBFloat16);
  Context context = sixteen();
  const at::Tensor expected = on_gpu(x, context).out;
  context.policy.dense_operations = 0;
  const auto run = [&](const at::Tensor& q, const at::Tensor& k) {
    return attend(q, k, fused.select(2, 2), context, workspace_).out;
  };
  EXPECT_TRUE(at::equal(run(fused.select(2, 0), fused.select(2, 1)), expected));
  EXPECT_TRUE(at::equal(run(fused.select(2, 0), heads_first), expected));
  // The rows of `wide` are not aligned to 16 bytes.
  const at::Tensor wide = at::constant_pad_nd(fused.select(2, 0), {1, 2}).narrow(3, 1, 64);
  EXPECT_TRUE(at::equal(run(wide, fused.select(2, 1)), expected));
}

TEST_F(SixteenBitsOnGpu, GiveTheSameBitsForCallsAsLargeAsAVideo) {
  const auto gpu = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  Context context = sixteen(0.12);
  context.text_tokens = 226;
  const at::Tensor a = at::randn({2, 17776, 3, 30, 64}, gpu), b = at::randn({2, 17776, 3, 30, 64}, gpu);
  const auto run = [&](const at::Tensor& qkv) {
    return attend(qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2), context, workspace_).out;
  };
  const at::Tensor of_a = run(a), of_b = run(b);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(at::equal(run(a), of_a));
    EXPECT_TRUE(at::equal(run(b), of_b));
  }
}

TEST_F(SixteenBitsOnGpu, NameTheTypeInTheKernel) {
  const Inputs x = inputs(1, 700, 700, 1, 64);
  EXPECT_THAT(on_gpu(x, sixteen()).kernel, HasSubstr("cuda bf16 Q.K, bf16 P.V (mma), means of 16 tokens"));
  EXPECT_THAT(on_gpu(x, sixteen(), at::kHalf).kernel, HasSubstr("cuda fp16 Q.K, fp16 P.V (mma)"));
}

TEST_F(SixteenBitsOnGpu, NeverWriteAnEightBitOutput) {
  const Inputs x = inputs(1, 700, 700, 1, 64);
  Context context = sixteen();
  context.takes_e4m3 = true;
  const Result result = on_gpu(x, context);
  EXPECT_EQ(result.out.scalar_type(), at::kBFloat16);
  EXPECT_FALSE(result.out_scale.defined());
}

TEST_F(SixteenBitsOnGpu, RefuseQuantizedMode) {
  Context context = sixteen();
  context.mode = Mode::quantized;
  EXPECT_THROW(on_gpu(inputs(1, 64, 64, 1, 64), context), Error);
}

}  // namespace
}  // namespace sparsereel::attention
