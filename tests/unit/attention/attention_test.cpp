// Tests attend() on a CPU: every mode against torch's attention, the prologue, masks, statistics, policies and errors.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/policies/policy.h"
#include "hilbert/error.h"
#include "tests/unit/attention/attend_on_cpu.h"

namespace sparsereel::attention {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Inputs : Projection {
  explicit Inputs(int64_t tokens, int64_t head_dim = 64, at::ScalarType dtype = at::kFloat, int64_t heads = 3)
      : Projection(noise({2, tokens, 3, heads, head_dim}).to(dtype)) {}

 private:
  static at::Tensor noise(at::IntArrayRef shape) {
    at::manual_seed(5);
    return at::randn(shape);
  }
};

/// Returns softmax(q k^T scale + mask) v in double. `mask` is [B, H, Nq, Nk] of bool; true means visible.
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
    context.text_tokens = 20;  // has no effect on a map that the caller gives
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
  context.policy.defaults.topk = 0.1;  // must not matter: every block is computed
  const Result result = run(x, context);
  EXPECT_LT(relative_l1(result.out, full.out), 0.045);
  EXPECT_GT(relative_l1(result.out, full.out), 0.01);
  EXPECT_LT(max_error(result.lse, full.lse), 0.02);
  EXPECT_EQ(result.statistics.kept_blocks, result.statistics.total_blocks);
  EXPECT_EQ(result.statistics.sparsity(), 0);
  EXPECT_THAT(result.kernel, StartsWith("cpu int8"));
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

/// Returns x with only the first `heads` heads of k and v.
Inputs with_fewer(Inputs x, int64_t heads) {
  x.k = x.k.narrow(2, 0, heads);
  x.v = x.v.narrow(2, 0, heads);
  return x;
}

Inputs repeated(Inputs x) {
  const int64_t group = x.q.size(2) / x.k.size(2);
  x.k = x.k.repeat_interleave(group, 2);
  x.v = x.v.repeat_interleave(group, 2);
  return x;
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

TEST(Prologue, NormalizesFewerHeadsOfKeys) {
  for (const bool across : {false, true}) {
    const Inputs x = with_fewer(Inputs(200, 64, at::kFloat, 6), 2);
    Context context;
    context.prologue.norm = Prologue::Norm::rms;
    context.prologue.across_heads = across;
    context.prologue.q_weight = at::rand({across ? 6 * 64 : 64});
    context.prologue.k_weight = at::rand({across ? 2 * 64 : 64});
    Context of_all = context;
    if (across) of_all.prologue.k_weight = context.prologue.k_weight.view({2, 64}).repeat_interleave(3, 0).flatten();
    for (const Mode mode : {Mode::full, Mode::sparse}) {
      context.mode = of_all.mode = mode;
      EXPECT_LE(max_error(run(x, context).out, run(repeated(x), of_all).out), 1e-5);
    }
    context.prologue.k_weight = at::rand({5});
    EXPECT_THROW(run(x, context), Error);
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

/// Computes the prologue with torch operations in double.
at::Tensor prologue_by_hand(const Prologue& p, at::Tensor x, const at::Tensor& weight, const at::Tensor& bias,
                            int64_t text) {
  x = x.to(at::kDouble);
  if (p.norm != Prologue::Norm::none) {
    const auto dims = p.across_heads ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{3};
    if (p.norm == Prologue::Norm::layer) x = x - x.mean(dims, true);
    x = x / (x.square().mean(dims, true) + p.eps).sqrt();
    const auto shape = p.across_heads ? std::vector<int64_t>{x.size(2), x.size(3)} : std::vector<int64_t>{x.size(3)};
    if (weight.defined()) x = x * weight.view(shape);
    if (bias.defined()) x = x + bias.view(shape);
  }
  if (!p.rotary_cos.defined()) return x.to(at::kFloat);
  x = x.clone();
  const int64_t dim = x.size(3), video = x.size(1) - text;
  const at::Tensor before = x.clone();
  for (int64_t i = 0; i < dim / 2; ++i) {
    const int64_t a = p.interleaved ? 2 * i : i, b = p.interleaved ? 2 * i + 1 : i + dim / 2;
    const auto part = [&](const at::Tensor& t, int64_t d) { return t.select(3, d).narrow(1, 0, video); };
    const auto table = [&](const at::Tensor& t, int64_t d) { return t.select(1, d).view({1, video, 1}); };
    part(x, a).copy_(part(before, a) * table(p.rotary_cos, a) - part(before, b) * table(p.rotary_sin, a));
    part(x, b).copy_(part(before, b) * table(p.rotary_cos, b) + part(before, a) * table(p.rotary_sin, b));
  }
  return x.to(at::kFloat);
}

TEST(Prologue, MatchesTheFormulasOfNormsAndRotaryEmbeddings) {
  const Inputs x(90, 40);
  const int64_t text = 12;
  for (const auto norm : {Prologue::Norm::none, Prologue::Norm::layer, Prologue::Norm::rms})
    for (const bool across : {false, true})
      for (const bool interleaved : {false, true})
        for (const bool rotary : {false, true}) {
          Context context;
          context.text_tokens = text;
          Prologue& p = context.prologue;
          p.norm = norm;
          p.across_heads = across;
          p.interleaved = interleaved;
          p.eps = 1e-3;
          at::manual_seed(9);
          if (norm != Prologue::Norm::none) {
            const int64_t size = across ? 120 : 40;
            p.q_weight = at::randn({size});
            p.k_weight = at::randn({size});
            p.k_bias = at::randn({size});
          }
          if (rotary) {
            p.rotary_cos = at::randn({90 - text, 40});
            p.rotary_sin = at::randn({90 - text, 40});
          }
          Inputs by_hand(90, 40);
          by_hand.q = prologue_by_hand(p, x.q, p.q_weight, p.q_bias, text);
          by_hand.k = prologue_by_hand(p, x.k, p.k_weight, p.k_bias, text);
          Context plain;
          plain.text_tokens = text;
          EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 2e-5);
          context.mode = plain.mode = Mode::sparse;
          context.policy.defaults.topk = plain.policy.defaults.topk = 1;
          EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 2e-5);
          // fp16 takes the torch operations that other devices and dtypes use.
          Inputs half(90, 40, at::kHalf);
          context.mode = Mode::full;
          EXPECT_LE(relative_l1(run(half, context).out.to(at::kFloat), run(x, context).out), 0.02);
        }
}

/// Computes in fp64 what a prologue makes of q or k if norm weights differ by token and angles by head.
at::Tensor parts_by_hand(const Prologue& p, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& of_text,
                         int64_t text) {
  const int64_t video = x.size(1) - text;
  const at::Tensor wide = x.to(at::kDouble), normed = wide / (wide.square().mean({3}, true) + p.eps).sqrt();
  at::Tensor head = normed.narrow(1, 0, video) * weight;
  const at::Tensor tail = normed.narrow(1, video, text) * (of_text.defined() ? of_text : weight);
  if (p.rotary_frequencies.defined()) {
    const at::Tensor angles = at::einsum(
        "na,had->nhd", {p.rotary_positions.narrow(1, 0, 3).to(at::kDouble), p.rotary_frequencies.to(at::kDouble)});
    const at::Tensor even = head.slice(3, 0, c10::nullopt, 2), odd = head.slice(3, 1, c10::nullopt, 2);
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    head = at::stack({even * cos - odd * sin, even * sin + odd * cos}, 4).flatten(3);
  }
  return at::cat({head, tail}, 1).to(at::kFloat);
}

TEST(Prologue, AppliesSeparateTextWeightsAndAnglesPerHead) {
  const Inputs x(90, 40);
  for (const int64_t text : {0, 12, 90})
    for (const bool weights : {false, true})
      for (const bool angles : {false, true}) {
        SCOPED_TRACE(::testing::Message() << text << " text tokens" << weights << angles);
        Context context;
        context.text_tokens = text;
        Prologue& p = context.prologue;
        p.norm = Prologue::Norm::rms;
        p.eps = 1e-5;
        at::manual_seed(9);
        p.q_weight = at::randn({40}), p.k_weight = at::randn({40});
        if (weights) p.text_q_weight = at::randn({40}), p.text_k_weight = at::randn({40});
        if (angles) {
          p.rotary_positions = at::randn({90 - text, 4}) * 20;
          p.rotary_frequencies = at::randn({3, 3, 20});
        }
        Inputs by_hand(90, 40);
        by_hand.q = parts_by_hand(p, x.q, p.q_weight, p.text_q_weight, text);
        by_hand.k = parts_by_hand(p, x.k, p.k_weight, p.text_k_weight, text);
        Context plain;
        plain.text_tokens = text;
        EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 1e-4);
        context.mode = plain.mode = Mode::sparse;
        context.policy.defaults.topk = plain.policy.defaults.topk = 1;
        EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 1e-4);
        // fp16 takes the torch operations that other devices and dtypes use.
        Inputs half(90, 40, at::kHalf);
        context.mode = Mode::full;
        EXPECT_LE(relative_l1(run(half, context).out.to(at::kFloat), run(x, context).out), 0.02);
      }
}

template <typename F>
void expect_refused(const F& f, const std::string& cause) {
  try {
    f();
    ADD_FAILURE() << "accepted: " << cause;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(cause));
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST(Attend, RefusesTensorsItCannotRun) {
  const Inputs x(20);
  Workspace w;
  const Context c;
  expect_refused([&] { attend(x.q, x.k, at::Tensor(), c, w); }, "v undefined");
  expect_refused([&] { attend(x.q[0], x.k, x.v, c, w); }, "q is [20, 3, 64]");
  expect_refused([&] { attend(x.q, x.k, x.v.narrow(1, 0, 3), c, w); }, "v [2, 3, 3, 64]");
  expect_refused([&] { attend(x.q, x.k.narrow(2, 0, 2), x.v.narrow(2, 0, 2), c, w); }, "k [2, 20, 2, 64]");
  expect_refused([&] { attend(x.q, x.k.to(at::kHalf), x.v, c, w); }, "Half");
  expect_refused([&] { run(Inputs(20, 64, at::kDouble), c); }, "Double");
  expect_refused([&] { run(Inputs(20, 8), c); }, "8]");
  expect_refused([&] { run(Inputs(20, 257), c); }, "257]");
  expect_refused([&] { attend(x.q.narrow(1, 0, 0), x.k, x.v, c, w); }, "[2, 0, 3, 64]");
  expect_refused([&] { attend(x.q.transpose(2, 3).contiguous().transpose(2, 3), x.k, x.v, c, w); }, "q is");
}

TEST(Attend, RefusesContextsThatDoNotFit) {
  const Inputs x(100);
  const auto refused = [&](const std::function<void(Context&)>& spoil, const std::string& cause) {
    Context context;
    spoil(context);
    expect_refused([&] { run(x, context); }, cause);
  };
  refused([](Context& c) { c.text_tokens = 101; }, "text_tokens is 101");
  refused([](Context& c) { c.scale = NAN; }, "scale is not finite");
  refused([](Context& c) { c.key_lengths = at::tensor({1, 2, 3}, at::kLong); }, "key_lengths is [3]");
  refused([](Context& c) { c.key_lengths = at::tensor({1, 101}, at::kLong); }, "to 101");
  refused([](Context& c) { c.key_bias = at::zeros({2, 99}); }, "key_bias is [2, 99]");
  refused([](Context& c) { c.key_bias = at::zeros({2, 100}, at::kDouble); }, "of Double");
  refused(
      [](Context& c) {
        c.key_bias = at::zeros({2, 100});
        c.mode = Mode::sparse;
      },
      "key_bias was given in mode sparse");
  refused([](Context& c) { c.block_map = BlockMap(2, 3, 2, 3, true); }, "block_map does not fit");
  refused([](Context& c) { c.policy.defaults.topk = 0; }, "topk is 0");
  refused([](Context& c) { c.policy.selection_rows = 100; }, "selection_rows is 100");
  refused([](Context& c) { c.policy.arithmetic = 32; }, "arithmetic is 32");
  refused(
      [](Context& c) {
        c.mode = Mode::quantized;
        c.policy.arithmetic = 16;
      },
      "a quantized call computes every block in 8 bits, but arithmetic is 16");
  refused([](Context& c) { c.prologue.q_weight = at::ones({64}); }, "norm none");
  refused([](Context& c) { c.prologue.rotary_cos = at::ones({100, 64}); }, "only one of");
  refused([](Context& c) { c.prologue.rotary_pairs = at::ones({100, 32, 2}, at::kHalf); }, "without rotary_cos");
  refused(
      [](Context& c) {
        c.prologue.norm = Prologue::Norm::rms;
        c.prologue.k_weight = at::ones({63});
      },
      "k_weight is [63]");
  refused(
      [](Context& c) {
        c.text_tokens = 10;
        c.prologue.rotary_cos = c.prologue.rotary_sin = at::ones({100, 64});
      },
      "rotary_cos is [100, 64]");
  refused([](Context& c) { c.prologue.text_q_weight = at::ones({64}); }, "without a norm");
  refused([](Context& c) { c.prologue.rotary_positions = at::ones({100, 4}); }, "only one of rotary_positions");
  const auto by_head = [](Context& c) {
    c.prologue.rotary_positions = at::ones({100, 4});
    c.prologue.rotary_frequencies = at::ones({2, 3, 32});
  };
  refused(
      [&](Context& c) {
        by_head(c);
        c.prologue.rotary_positions = at::ones({100, 3});
      },
      "rotary_positions is [100, 3]");
  refused(
      [&](Context& c) {
        by_head(c);
        c.prologue.rotary_frequencies = at::ones({3, 2, 32});
      },
      "rotary_frequencies is [3, 2, 32]");
  refused(
      [&](Context& c) {
        by_head(c);
        c.prologue.interleaved = false;
      },
      "leaves out interleaved");
}

TEST(UnsupportedReason, IsEmptyOnACpuAndForFullAttention) {
  for (const Mode mode : {Mode::full, Mode::quantized, Mode::sparse, Mode::check})
    EXPECT_EQ(unsupported_reason(mode, at::kCPU, at::kFloat), "");
  EXPECT_EQ(unsupported_reason(Mode::full, at::kCUDA, at::kFloat), "");
}

TEST(UnsupportedReason, NamesWhatTheKernelsNeed) {
  for (const Mode mode : {Mode::quantized, Mode::sparse, Mode::check})
    EXPECT_THAT(unsupported_reason(mode, at::kCUDA, at::kFloat),
                AnyOf(HasSubstr("no CUDA attention kernels"), HasSubstr("fp16 or bf16, not Float")));
}

}  // namespace
}  // namespace sparsereel::attention
