// Tests means of dropped blocks, and selection by the error of these means, on a GPU. Compares with exact attention on
// the CPU over the same blocks.
#include <gmock/gmock.h>

#include <random>

#include "hilbert/error.h"
#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::attention {
namespace {

class MeansOnGpu : public AttendOnGpu {
 protected:
  static Context means(double topk, Ranking ranking = Ranking::error) {
    Context context{.mode = Mode::sparse};
    context.policy.dropped = Dropped::mean;
    context.policy.ranking = ranking;
    context.policy.defaults.topk = topk;
    context.policy.defaults.pv_threshold = 32;
    return context;
  }

  /// Returns a context that keeps the blocks whose means would err by more than `bound`, relative to the mean length of
  /// the outputs.
  static Context bounded(double bound) {
    Context context = means(0.5);
    context.policy.defaults.selection = Selection::block_error;
    context.policy.defaults.block_error = bound;
    return context;
  }

  /// Expects the GPU to keep nearly as many blocks as the CPU. The CPU must keep some blocks and drop some.
  void expect_bounded_as_on_the_cpu(const Inputs& x, const Context& context, at::ScalarType dtype = at::kBFloat16) {
    const Result gpu = on_gpu(x, context, dtype), cpu = exact(x, context);
    EXPECT_GT(cpu.statistics.sparsity(), 0.1);
    EXPECT_LT(cpu.statistics.sparsity(), 0.95);
    EXPECT_NEAR(gpu.statistics.sparsity(), cpu.statistics.sparsity(), 0.015);
    EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, 0.07);
  }

  /// Expects the GPU's predicted error to differ from the CPU's by at most the fraction `off`.
  Result expect_predicted_as_on_the_cpu(const Inputs& x, Context context, double off) {
    context.mode = Mode::check;
    const Result gpu = on_gpu(x, context), cpu = exact(x, context);
    EXPECT_NEAR(gpu.statistics.predicted_error(), cpu.statistics.predicted_error(),
                off * cpu.statistics.predicted_error());
    return gpu;
  }

  static BlockMap random_map(const Inputs& x, double kept) {
    BlockMap map(x.q.size(0), x.q.size(2), blocks_of(x.q.size(1)), blocks_of(x.k.size(1)), false);
    const at::Tensor random = at::rand({static_cast<int64_t>(map.bits.size())});
    for (size_t i = 0; i < map.bits.size(); ++i)
      map.bits[i] = random[static_cast<int64_t>(i)].item<double>() < kept ? 1 : 0;
    return map;
  }

  /// Expects the GPU to follow a random map as the CPU does, which follows it exactly.
  void expect_map_obeyed(const Inputs& x, Context context, double kept, double bound = 0.06) {
    context.block_map = random_map(x, kept);
    context.return_lse = true;
    const Result gpu = on_gpu(x, context), cpu = exact(x, context);
    EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, bound);
    EXPECT_EQ(gpu.statistics.kept_blocks, cpu.statistics.kept_blocks);
    EXPECT_TRUE(at::equal(at::isinf(gpu.lse.cpu()), at::isinf(cpu.lse)));
    const at::Tensor error = (gpu.lse.cpu() - cpu.lse).masked_select(at::isfinite(cpu.lse)).abs();
    EXPECT_LT(error.max().item<double>(), 0.08);
    Context dropping = context;  // without means the result must differ, otherwise this test would not see them
    dropping.policy.dropped = Dropped::none;
    dropping.policy.ranking = Ranking::mass;
    EXPECT_GT(compare(exact(x, dropping).out, cpu.out).relative_l1, 2 * bound);
  }
};

TEST_F(MeansOnGpu, ReplaceTheBlocksThatTheMapOfTheCallerDrops) {
  for (const int64_t head_dim : {16, 64, 96, 128, 256}) {
    SCOPED_TRACE(head_dim);
    expect_map_obeyed(video(2, 700, 2100, 2, head_dim), means(0.5), 0.3);
  }
}

TEST_F(MeansOnGpu, FillTilesWithoutAnyBlock) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    const Inputs x = video(1, 400, 2112, 2, head_dim);  // 33 blocks: their means fill two records and a part of a third
    Context context = means(0.5);
    context.block_map = BlockMap(1, 2, blocks_of(400), blocks_of(2112), false);
    const Result gpu = on_gpu(x, context);
    EXPECT_LT(compare(gpu.out, exact(x, context).out).relative_l1, 0.06);
    EXPECT_EQ(gpu.statistics.kept_blocks, 0);
    EXPECT_EQ(gpu.statistics.mean_blocks, 2 * blocks_of(400) * 3);
  }
}

TEST_F(MeansOnGpu, ObeyTextKeyLengthsAndCausalMasks) {
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(::testing::Message() << head_dim << (causal ? " causal" : ""));
      Context context = means(0.5);
      context.causal = causal;
      context.text_tokens = 70;
      expect_map_obeyed(video(1, 1300, 1300, 2, head_dim), context, 0.4, 0.07);
      context.text_tokens = 0;
      context.key_lengths = at::tensor({1200, 65, 1025}, at::kLong);
      Inputs x = video(3, 1200, 1200, 2, head_dim);
      // V of padding is large, so that any effect of it would be seen.
      x.v.select(0, 1).narrow(0, 65, 1135).fill_(1000);
      expect_map_obeyed(x, context, 0.4, 0.07);
    }
  }
}

// Means of keys that the causal mask hides must not push the weights of visible keys below the smallest weight.
TEST_F(MeansOnGpu, IgnoreHiddenMeansWithLargeScores) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    Inputs x = video(1, 1024, 1024, 1, head_dim);
    x.q = rounded(x.q * 0.3 + 1);
    x.k.narrow(1, 512, 512).add_(8);  // so that one record of means has past and future blocks
    x.k = rounded(x.k);
    Context context = means(0.5);
    context.causal = true;
    context.block_map = random_map(x, 0.4);
    for (int64_t i = 0; i < 16; ++i) context.block_map->row(0, 0, i)[i] = 1;
    EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.1);
  }
}

TEST_F(MeansOnGpu, KeepThePrecisionOfOtherChannelsBesideLoudOnes) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    Context context = means(0.5);
    const Inputs x = loud_inputs(2000, 2, head_dim, context.prologue);
    expect_map_obeyed(x, context, 0.4);
  }
}

TEST_F(MeansOnGpu, SelectBlocksAsWellAsTheCpu) {
  for (const int64_t head_dim : {64, 128, 256}) {
    const Inputs x = video(1, 3000, 3000, 2, head_dim);
    const at::Tensor full = exact(x, {.mode = Mode::full}).out;
    for (const int64_t rows : {64, 128, 192}) {
      for (const auto ranking : {Ranking::error, Ranking::mass}) {
        for (const auto selection : {Selection::topk, Selection::cdf}) {
          for (const int64_t text : {0, 100}) {
            SCOPED_TRACE(::testing::Message()
                         << "head_dim " << head_dim << ", rows " << rows << ", " << name(ranking)
                         << (selection == Selection::cdf ? ", cdf" : ", topk") << ", text " << text);
            Context context = means(0.25, ranking);
            context.policy.selection_rows = rows;
            context.policy.defaults.selection = selection;
            context.policy.defaults.cdf = 0.6;
            context.text_tokens = text;
            const Result gpu = on_gpu(x, context), cpu = exact(x, context);
            EXPECT_NEAR(gpu.statistics.sparsity(), cpu.statistics.sparsity(), 0.01);
            // The CPU counts only the cells in use, the GPU whole records.
            EXPECT_GE(gpu.statistics.mean_share(), cpu.statistics.mean_share());
            EXPECT_LE(gpu.statistics.mean_share(), 3.0 / 46);
            EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, 0.07);
            EXPECT_LT(compare(gpu.out, full).relative_l1, compare(cpu.out, full).relative_l1 + 0.02);
          }
        }
      }
    }
  }
}

TEST_F(MeansOnGpu, HandleSharpScoresAndOutliers) {
  for (const int64_t head_dim : {64, 128}) {
    for (const double gain : {1.0, 3.0, 12.0}) {  // scores for linear exponentials with a clamp, and for ex2
      SCOPED_TRACE(::testing::Message() << head_dim << " x " << gain);
      Inputs x = video(1, 1000, 2000, 2, head_dim);
      x.q = rounded(x.q * gain);
      Context context = means(0.5);
      context.block_map = random_map(x, 0.4);
      const Result gpu = on_gpu(x, context), cpu = exact(x, context);
      EXPECT_TRUE(at::isfinite(gpu.out).all().item<bool>());
      EXPECT_GT(compare(gpu.out, cpu.out).cosine, 0.985);
    }
  }
}

TEST_F(MeansOnGpu, GiveTheMeanOfVForConstantInputs) {
  for (const double value : {0.0, 1e-4, 0.5, 1e4}) {
    SCOPED_TRACE(value);
    expect_mean_of_v(value, means(0.1), 0.02);
  }
}

TEST_F(MeansOnGpu, GiveTheSameBitsInRepeatedCalls) {
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const int64_t text : {0, 50}) {  // without text, the last tiles are computed in parts
      const Inputs x = video(2, 5003, 5003, 2, head_dim);
      Context context = means(0.6);
      context.text_tokens = text;
      const at::Tensor first = on_gpu(x, context).out;
      EXPECT_LT(compare(first, exact(x, context).out).relative_l1, 0.06);
      for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(on_gpu(x, context).out, first));
    }
  }
}

/// With the size of CogVideoX-5b, each multiprocessor takes many tiles, and each call finds the data of another call in
/// its scratch memory. A race would change bits here long before it crashed a program.
TEST_F(MeansOnGpu, GiveTheSameBitsInAnyOrderForCallsAsLargeAsAVideo) {
  const auto gpu = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  Context context = means(0.12);
  context.policy.defaults.pv_threshold = 50;
  context.text_tokens = 226;
  const auto run = [&](const at::Tensor& qkv) {
    return attend(qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2), context, workspace_).out;
  };
  std::vector<at::Tensor> inputs, first;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(at::randn({2, 17776, 3, 48, 64}, gpu));
    first.push_back(run(inputs.back()));
  }
  at::Tensor same = at::ones({}, gpu.dtype(at::kBool));
  std::mt19937 generator(1);
  for (int call = 0; call < 150; ++call) {
    const size_t i = generator() % inputs.size();
    same.logical_and_(run(inputs[i]).eq(first[i]).all());
  }
  EXPECT_TRUE(same.item<bool>());
}

TEST_F(MeansOnGpu, KeepAnErrorBoundAsTheCpuDoes) {
  const Inputs x = video(1, 3000, 3000, 2, 64);
  double last = 1;
  for (const double bound : {0.02, 0.1, 0.3}) {
    SCOPED_TRACE(bound);
    Context context = means(0.5);
    context.policy.defaults.selection = Selection::error;
    context.policy.defaults.error = bound;
    const Result gpu = on_gpu(x, context), cpu = exact(x, context);
    EXPECT_NEAR(gpu.statistics.sparsity(), cpu.statistics.sparsity(), 0.02);
    EXPECT_LE(gpu.statistics.predicted_error(), bound * 1.001);
    EXPECT_NEAR(gpu.statistics.predicted_error(), cpu.statistics.predicted_error(), 0.05 * bound);
    EXPECT_LT(1 - gpu.statistics.sparsity(), last);
    last = 1 - gpu.statistics.sparsity();
  }
}

TEST_F(MeansOnGpu, KeepAnErrorBoundForScoresBeyondTheRangeOfExponentials) {
  for (const double gain : {12.0, 60.0}) {
    SCOPED_TRACE(gain);
    Inputs x = video(1, 3000, 3000, 2, 64);
    x.q = rounded(x.q * gain);
    Context context = means(0.5);
    context.policy.defaults.selection = Selection::error;
    context.policy.defaults.error = 5;  // a large bound, because means err far more if scores are sharp
    const Result gpu = on_gpu(x, context), cpu = exact(x, context);
    EXPECT_GT(cpu.statistics.sparsity(), 0.3);
    EXPECT_NEAR(gpu.statistics.sparsity(), cpu.statistics.sparsity(), 0.03);
    EXPECT_NEAR(gpu.statistics.predicted_error(), cpu.statistics.predicted_error(), 0.25);
  }
}

TEST_F(MeansOnGpu, KeepABlockErrorBoundAsTheCpuDoes) {
  for (const int64_t head_dim : {64, 96, 128, 256}) {
    const Inputs x = video(2, 3000, 3000, 2, head_dim);
    for (const int64_t rows : {64, 192}) {
      for (const double bound : {0.02, 0.05}) {
        SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << ", rows " << rows << ", bound " << bound);
        Context context = bounded(bound);
        context.policy.selection_rows = rows;
        expect_bounded_as_on_the_cpu(x, context);
        context.text_tokens = 100;
        expect_bounded_as_on_the_cpu(x, context);
        context.text_tokens = 0;
        context.causal = true;
        expect_bounded_as_on_the_cpu(x, context);
        context.causal = false;
        context.key_lengths = at::tensor({3000, 1003}, at::kLong);
        expect_bounded_as_on_the_cpu(x, context);
      }
    }
  }
}

TEST_F(MeansOnGpu, ScaleABlockErrorBoundByTheOutput) {
  for (const double size : {1e-4, 1.0, 1e4}) {
    SCOPED_TRACE(size);
    Inputs x = video(2, 3000, 3000, 2, 64);
    x.v.mul_(size);
    x.v.select(0, 1).mul_(0.01);  // a small V in one batch entry, because the bound is relative to each entry
    x.v = rounded(x.v);
    expect_bounded_as_on_the_cpu(x, bounded(0.02));
  }
}

TEST_F(MeansOnGpu, KeepABlockErrorBoundForHeadsThatDiffer) {
  Inputs x = video(2, 3000, 3000, 4, 64);
  x.v.select(2, 1).mul_(4);
  x.v = rounded(x.v);
  expect_bounded_as_on_the_cpu(x, bounded(0.02));
  std::vector<HeadPolicy> heads(4, bounded(0.02).policy.defaults);
  heads[1].block_error = 0.05;
  heads[2] = means(0.3).policy.defaults;
  heads[3].dense = true;
  Context context = bounded(0.02);
  context.policy.heads = heads;
  expect_bounded_as_on_the_cpu(x, context);
  const Result gpu = on_gpu(x, context), cpu = exact(x, context);
  for (int64_t h = 0; h < 4; ++h) EXPECT_LT(compare(gpu.out.select(2, h), cpu.out.select(2, h)).relative_l1, 0.07) << h;
}

TEST_F(MeansOnGpu, PredictTheErrorOfABlockErrorBoundAsTheCpuDoes) {
  const Inputs x = video(2, 3000, 3000, 2, 64);
  const Result check = expect_predicted_as_on_the_cpu(x, bounded(0.02), 0.03);
  // In mode sparse, the GPU predicts output lengths only for a sample of the tiles, so it reports no predicted error.
  const Result sparse = on_gpu(x, bounded(0.02));
  EXPECT_EQ(sparse.statistics.kept_blocks, check.statistics.kept_blocks);
  EXPECT_EQ(sparse.statistics.predicted_error(), 0);
}

TEST_F(MeansOnGpu, GiveTheSameBitsInRepeatedCallsWithABlockErrorBound) {
  const Inputs x = video(2, 5003, 5003, 5, 128);
  const Context context = bounded(0.02);
  const Result first = on_gpu(x, context);
  for (int i = 0; i < 5; ++i) {
    const Result again = on_gpu(x, context);
    EXPECT_TRUE(at::equal(again.out, first.out));
    EXPECT_EQ(again.statistics.kept_blocks, first.statistics.kept_blocks);
  }
}

TEST_F(MeansOnGpu, KeepABlockErrorBoundIfOneHeadContainsNan) {
  Inputs x = video(1, 3000, 3000, 2, 64);
  x.v.select(2, 0).narrow(1, 100, 1).fill_(NAN);
  const Context context = bounded(0.02);
  const at::Tensor gpu = on_gpu(x, context).out.select(2, 1), cpu = exact(x, context).out.select(2, 1);
  EXPECT_LT(compare(gpu, cpu).relative_l1, 0.07);
}

TEST_F(MeansOnGpu, GiveTheMeanOfVForConstantInputsWithABlockErrorBound) {
  for (const double value : {0.0, 1e-4, 0.5, 1e4}) {
    SCOPED_TRACE(value);
    expect_mean_of_v(value, bounded(0.02), 0.02);
  }
}

TEST_F(MeansOnGpu, PredictTheErrorOfABudgetAsTheCpuDoes) {
  expect_predicted_as_on_the_cpu(video(2, 3000, 3000, 2, 64), means(0.2), 0.02);
}

TEST_F(MeansOnGpu, SpendABudgetOnTheLargestErrors) {
  Inputs x = video(2, 3000, 3000, 3, 64);
  x.v.select(2, 1).mul_(4);  // so that errors of head 1 are larger
  x.v = rounded(x.v);
  for (const bool alone : {false, true}) {
    SCOPED_TRACE(alone ? "a budget a head" : "one for all heads");
    Context context = means(0.2);
    std::vector<HeadPolicy> heads(3, context.policy.defaults);
    heads[2].topk = 0.5;
    if (alone) context.policy.heads = heads;
    const Result gpu = on_gpu(x, context), cpu = exact(x, context);
    EXPECT_NEAR(gpu.statistics.sparsity(), cpu.statistics.sparsity(), 0.002);
    for (int64_t h = 0; h < 3; ++h)
      EXPECT_LT(compare(gpu.out.select(2, h), cpu.out.select(2, h)).relative_l1, 0.07) << h;
  }
}

TEST_F(MeansOnGpu, RefuseOtherCellSizes) {
  const Inputs x = inputs(1, 700, 700, 1, 64);
  Context context = means(0.5);
  context.policy.cell = 32;
  EXPECT_THROW(on_gpu(x, context), Error);
}

/// Compares V's rounding with the CPU's emulation, whose scales come from the true maximum of every channel of V.
class ValueRangeOnGpu : public AttendOnGpu {
 protected:
  // One token that a sample of every 17th token does not contain.
  static constexpr int64_t kTokens = 9001, kOutlier = 4321;

  void expect_as_good_as_a_true_maximum(Inputs x) {
    x.v = rounded(x.v);
    const Context context{.mode = Mode::quantized};
    Workspace workspace;
    const at::Tensor full = exact(x, {.mode = Mode::full}).out;
    const double truly = compare(attend(x.q, x.k, x.v, context, workspace).out, full).relative_l1;
    const double ours = compare(on_gpu(x, context).out, full).relative_l1;
    // Every format of V stores the largest value of a record exactly, or in fp16 nearly so.
    const double rounding = 5e-4;
    EXPECT_LT(ours, 1.1 * truly + rounding) << "with the true maximum " << truly;
  }

  /// Returns inputs whose queries all attend to one token.
  static Inputs with_sink() {
    Inputs x = inputs(1, 192, kTokens, 1, 64);
    x.q = rounded(x.q * 0.2 + 1);
    x.k.select(1, kOutlier).fill_(3);
    return x;
  }
};

TEST_F(ValueRangeOnGpu, CoversAnOutlierToken) {
  for (const double gain : {20.0, 100.0, 1e4}) {
    SCOPED_TRACE(gain);
    Inputs x = with_sink();
    x.v.select(1, kOutlier).mul_(gain);
    expect_as_good_as_a_true_maximum(x);
  }
}

TEST_F(ValueRangeOnGpu, CoversAnOutlierChannel) {
  for (const double gain : {100.0, 3000.0, 1e5}) {
    SCOPED_TRACE(gain);
    Inputs x = with_sink();
    x.v.select(1, kOutlier).select(2, 5).mul_(gain);
    expect_as_good_as_a_true_maximum(x);
  }
}

TEST_F(ValueRangeOnGpu, CoversHugeAndTinyValues) {
  for (const double size : {1e-4, 1e4, 1e30}) {
    SCOPED_TRACE(size);
    Inputs x = inputs(1, 192, kTokens, 1, 64);
    x.v.mul_(size);
    x.v = rounded(x.v);
    const Context context{.mode = Mode::quantized};
    EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.06);
  }
}

}  // namespace
}  // namespace sparsereel::attention
