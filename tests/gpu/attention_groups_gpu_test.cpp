// Tests heads of q that share a head of k and v on a GPU. Results are compared with exact attention on the CPU, and
// with the same call in which k and v are repeated for each head of q.
#include <gmock/gmock.h>

#include <functional>

#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::attention {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeads = 6, kKeyHeads = 2, kGroup = kHeads / kKeyHeads;

class GroupsOnGpu : public AttendOnGpu {
 protected:
  static Inputs grouped(int64_t batch, int64_t queries, int64_t keys, int64_t head_dim) {
    const Inputs x = inputs(batch, queries, keys, kHeads, head_dim);
    const auto fewer = [](const at::Tensor& t) { return t.narrow(2, 0, kKeyHeads); };
    return {.q = smooth(x.q), .k = smooth(fewer(x.k)), .v = smooth(fewer(x.v))};
  }

  static Inputs repeated(const Inputs& x) {
    const auto of_every_head = [](const at::Tensor& t) { return t.repeat_interleave(kGroup, 2); };
    return {.q = x.q, .k = of_every_head(x.k), .v = of_every_head(x.v)};
  }

  /// Returns the context of the call with repeated k and v: the weights of a norm across heads are repeated too.
  static Context repeated(Context context) {
    if (!context.prologue.across_heads) return context;
    for (at::Tensor* t : {&context.prologue.k_weight, &context.prologue.k_bias})
      if (t->defined()) *t = t->view({kKeyHeads, -1}).repeat_interleave(kGroup, 0).flatten();
    return context;
  }

  /// Expects the call to be as close to full attention as the call with repeated k and v, to be close to that call, and
  /// to keep as many blocks as it does.
  void expect_as_repeated(const Inputs& x, Context context, double bound = 0.06) {
    context.return_lse = true;
    const Inputs all = repeated(x);
    const Context of_all = repeated(context);
    const Result got = on_gpu(x, context), expected = on_gpu(all, of_all);
    Context full = of_all;
    full.mode = Mode::full;
    full.return_lse = false;
    const Result dense = exact(all, full);
    const double error = compare(got.out, dense.out).relative_l1, usual = compare(expected.out, dense.out).relative_l1;
    EXPECT_LT(error, 1.05 * usual + 0.005);
    EXPECT_LT(compare(got.out, expected.out.cpu().to(at::kFloat)).relative_l1, bound);
    EXPECT_NEAR(got.statistics.sparsity(), expected.statistics.sparsity(), 0.01);
    const at::Tensor finite = at::isfinite(expected.lse);
    EXPECT_TRUE(at::equal(at::isfinite(got.lse), finite));
    EXPECT_LT((got.lse - expected.lse).masked_select(finite).abs().mean().item<double>(), 0.03);
  }

  static Context sparse(double topk, bool means) {
    Context context{.mode = Mode::sparse};
    context.policy.dropped = means ? Dropped::mean : Dropped::none;
    context.policy.ranking = means ? Ranking::error : Ranking::mass;
    context.policy.defaults.topk = topk;
    return context;
  }

  /// Calls `expect` with a context for each way to choose blocks.
  static void each_mode(const std::function<void(const Context&)>& expect) {
    Context by_mass = sparse(0.3, false), bounded = sparse(1, true), bounded_blocks = sparse(1, true);
    by_mass.policy.defaults.similarity = 0.2;
    bounded.policy.defaults.selection = Selection::error;
    bounded.policy.defaults.error = 0.1;
    bounded_blocks.policy.defaults.selection = Selection::block_error;
    bounded_blocks.policy.defaults.block_error = 0.02;
    const std::vector<std::pair<const char*, Context>> all = {{"quantized", {.mode = Mode::quantized}},
                                                              {"dropped", by_mass},
                                                              {"means", sparse(0.3, true)},
                                                              {"to an error", bounded},
                                                              {"to a block's error", bounded_blocks}};
    for (const auto& [name, context] : all) {
      SCOPED_TRACE(name);
      expect(context);
    }
  }
};

TEST_F(GroupsOnGpu, StayNearExactAttention) {
  for (const int64_t head_dim : {16, 64, 96, 128, 256})
    for (const int64_t tokens : {1, 65, 700, 2336}) {
      SCOPED_TRACE(::testing::Message() << head_dim << ", " << tokens << " tokens");
      Inputs x = inputs(2, tokens, tokens, kHeads, head_dim);
      x.k = x.k.narrow(2, 0, kKeyHeads);
      x.v = x.v.narrow(2, 0, kKeyHeads);
      expect_quantized_near_exact(x);
    }
}

TEST_F(GroupsOnGpu, MatchRepeatedKeysAndValuesInEveryMode) {
  for (const int64_t head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    const Inputs x = grouped(2, 1500, 1700, head_dim);
    each_mode([&](const Context& context) { expect_as_repeated(x, context); });
  }
}

TEST_F(GroupsOnGpu, ObeyMasks) {
  const Inputs x = grouped(2, 1500, 1500, 128);
  Inputs padded = x;
  padded.v = x.v.clone();
  // V of padding is large, so that any effect of it would be seen.
  padded.v.select(0, 1).narrow(0, 1100, 400).fill_(1000);
  each_mode([&](Context context) {
    context.text_tokens = 70;
    expect_as_repeated(x, context);
    context.text_tokens = 0;
    context.causal = true;
    expect_as_repeated(x, context, 0.07);
    context.causal = false;
    context.key_lengths = at::tensor({1500, 1100}, at::kLong);
    expect_as_repeated(padded, context);
  });
}

TEST_F(GroupsOnGpu, ObeyTheMapOfTheCallerForEachHead) {
  const Inputs x = grouped(2, 700, 2100, 64);
  for (const bool means : {false, true}) {
    Context context = sparse(0.5, means);
    context.policy.defaults.pv_threshold = 32;
    context.block_map = BlockMap(2, kHeads, blocks_of(700), blocks_of(2100), false);
    const at::Tensor random = at::rand({static_cast<int64_t>(context.block_map->bits.size())});
    for (size_t i = 0; i < context.block_map->bits.size(); ++i)
      context.block_map->bits[i] = random[static_cast<int64_t>(i)].item<double>() < 0.3 ? 1 : 0;
    const Result gpu = on_gpu(x, context), cpu = exact(repeated(x), context);
    EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, 0.06);
    EXPECT_EQ(gpu.statistics.kept_blocks, cpu.statistics.kept_blocks);
  }
}

TEST_F(GroupsOnGpu, LetHeadsOfAGroupChooseDifferentBlocks) {
  const Inputs x = grouped(1, 1500, 1500, 64);
  std::vector<HeadPolicy> heads(kHeads);
  for (size_t h = 0; h < heads.size(); ++h) heads[h].topk = 0.1 + 0.15 * static_cast<double>(h);
  heads[4].dense = true;
  Context context = sparse(0.5, true);
  context.policy.heads = heads;
  expect_as_repeated(x, context);
}

TEST_F(GroupsOnGpu, ApplyNormsAndRotaryEmbeddingsToTheHeadsOfKeys) {
  using Norm = Prologue::Norm;
  const int64_t tokens = 1300, text = 44, head_dim = 64;
  const Inputs x = grouped(2, tokens, tokens, head_dim);
  const at::Tensor angles = at::rand({tokens - text, head_dim / 2}) * 0.3;
  for (const Norm norm : {Norm::layer, Norm::rms})
    for (const bool across : {false, true})
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << static_cast<int>(norm) << (across ? " across heads" : "") << (biased ? " biased" : ""));
        const auto size = [&](int64_t heads) { return across ? heads * head_dim : head_dim; };
        Context context{.mode = Mode::quantized, .text_tokens = text};
        Prologue& p = context.prologue;
        p.norm = norm;
        p.across_heads = across;
        p.q_weight = at::randn({size(kHeads)});
        p.k_weight = at::randn({size(kKeyHeads)});
        if (biased) p.k_bias = at::randn({size(kKeyHeads)}) * 0.5;
        p.rotary_cos = angles.repeat_interleave(2, 1).cos();
        p.rotary_sin = angles.repeat_interleave(2, 1).sin();
        expect_quantized_near_exact(x, context);
        expect_as_repeated(x, context);
        context.mode = Mode::full;  // a kernel applies the prologue, and torch computes attention
        EXPECT_LT(compare(on_gpu(x, context).out, exact(x, context).out).relative_l1, 0.02);
      }
}

// Heads of q that share K also share its records, so the channels of K are balanced for the queries of all these heads.
TEST_F(GroupsOnGpu, KeepThePrecisionOfOtherChannelsBesideLoudOnes) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    Context context;
    Inputs x = loud_inputs(2000, kHeads, head_dim, context.prologue);
    x.k = x.k.narrow(2, 0, kKeyHeads);
    x.v = x.v.narrow(2, 0, kKeyHeads);
    expect_quantized_near_exact(x, context);
  }
}

TEST_F(GroupsOnGpu, KeepThePrecisionOfOtherHeadsBesideOutliersOfOneHead) {
  Inputs x = inputs(2, 3000, 3000, kHeads, 128);
  x.k = x.k.narrow(2, 0, kKeyHeads).contiguous();
  x.v = x.v.narrow(2, 0, kKeyHeads).contiguous();
  // A token that the statistics' sample skips, so this head must be quantized again.
  x.v.select(0, 1).select(1, 1).select(0, 777).mul_(3000);
  const Context context{.mode = Mode::quantized};
  const at::Tensor got = on_gpu(x, context).out.cpu().to(at::kFloat), expected = exact(x, context).out;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto head = [&](const at::Tensor& t) { return t.select(0, b).select(1, h); };
      EXPECT_LT(compare(head(got), head(expected)).relative_l1, b == 1 && h >= kGroup ? 0.1 : 0.06) << b << " " << h;
    }
}

TEST_F(GroupsOnGpu, GiveTheSameBitsInRepeatedCalls) {
  const Inputs x = grouped(1, 3000, 3000, 128);
  each_mode([&](const Context& context) {
    const at::Tensor first = on_gpu(x, context).out;
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(at::equal(on_gpu(x, context).out, first));
  });
}

TEST_F(GroupsOnGpu, RoundTheOutputToEightBitsOnRequest) {
  const Inputs x = grouped(1, 2000, 2000, 128);
  Context context{.mode = Mode::quantized, .takes_e4m3 = true};
  const Result result = on_gpu(x, context);
  if (!result.out_scale.defined()) GTEST_SKIP() << "this kernel writes no output in 8 bits";
  const at::Tensor out = result.out.to(at::kFloat) * result.out_scale.view({-1, 1, 1, 1});
  EXPECT_LT(compare(out, exact(x, {.mode = Mode::full}).out).relative_l1, 0.08);
}

TEST_F(GroupsOnGpu, LeaveFewKeysToTorch) {
  const Inputs x = grouped(2, 500, 77, 64);
  const Context context{.mode = Mode::full};
  const Result result = on_gpu(x, context);
  EXPECT_THAT(result.kernel, HasSubstr("torch sdpa"));
  EXPECT_LT(compare(result.out, exact(repeated(x), context).out).relative_l1, 0.02);
}

}  // namespace
}  // namespace sparsereel::attention
