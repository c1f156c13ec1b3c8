// Tests that the C interface gives the same results as the C++ core.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>

#include "attention/core/elements.h"
#include "hilbert/token_order.h"
#include "tests/unit/attention/library/caller.h"

namespace sparsereel::attention {
namespace {

using cpu::Case;
using cpu::kTolerance;
using cpu::near;

cpu::Selector selector_of(const std::vector<HeadPolicy>& heads, Ranking ranking) {
  return {.heads = heads, .rows = 192, .ranking = ranking};
}

TEST(AttentionLibrary, ComputesExactAttentionWithEveryBlock) {
  for (const int64_t head_dim : {16, 64, 75, 256}) {
    Case c({.queries = 130, .keys = 130, .head_dim = head_dim});
    Caller caller(c);
    keep_all(caller.call);
    caller.run();
    const Case::Output expected = c.naive(cpu::visible_blocks(c.params));
    EXPECT_TRUE(near(caller.out, expected.out, kTolerance)) << head_dim;
    EXPECT_TRUE(near(caller.lse, expected.lse, kTolerance)) << head_dim;
  }
}

TEST(AttentionLibrary, IgnoresTheArithmeticOfAGpuOnACpu) {
  const Case c({.queries = 700, .keys = 700});
  Caller caller(c);
  const std::vector<float> expected = caller.run();
  for (const int64_t bits : {8, 16}) {
    caller.call.arithmetic = bits;
    EXPECT_EQ(caller.run(), expected) << bits;
  }
}

TEST(AttentionLibrary, ObeysMasksAndScale) {
  const std::vector<int64_t> lengths = {70, 150};
  Case c({.queries = 100, .keys = 150});
  c.params.causal = true;
  c.params.key_lengths = lengths.data();
  c.params.scale = 0.3;
  Caller caller(c);
  caller.call.scale = 0.3;
  keep_all(caller.call);
  caller.run();
  EXPECT_TRUE(near(caller.out, c.naive(cpu::visible_blocks(c.params)).out, kTolerance));
}

TEST(AttentionLibrary, SelectsBlocksByThePolicy) {
  Case c({.queries = 700, .keys = 700});
  c.params.text_tokens = 30;
  struct Policy {
    sparsereel_selection selection;
    sparsereel_ranking ranking;
    HeadPolicy head;
  };
  for (const Policy& policy :
       {Policy{SPARSEREEL_TOPK, SPARSEREEL_BY_ERROR, {.topk = 0.3}},
        Policy{SPARSEREEL_TOPK, SPARSEREEL_BY_MASS, {.topk = 0.3}},
        Policy{SPARSEREEL_CDF, SPARSEREEL_BY_MASS, {.selection = Selection::cdf, .cdf = 0.6}},
        Policy{SPARSEREEL_ERROR, SPARSEREEL_BY_ERROR, {.selection = Selection::error, .error = 3}},
        Policy{SPARSEREEL_BLOCK_ERROR,
               SPARSEREEL_BY_ERROR,
               {.selection = Selection::block_error, .error = 0.6, .block_error = 0.6}}}) {
    const bool by_error = policy.ranking == SPARSEREEL_BY_ERROR;
    c.params.mean_cell = by_error ? 16 : 0;
    Caller caller(c);
    caller.call.policy.all.selection = policy.selection;
    caller.call.policy.all.topk = policy.head.topk;
    caller.call.policy.all.cdf = policy.head.cdf;
    caller.call.policy.all.error = policy.head.error;
    caller.call.policy.ranking = policy.ranking;
    caller.call.policy.dropped = by_error ? SPARSEREEL_MEANS : SPARSEREEL_NOTHING;
    caller.run();
    const std::vector<HeadPolicy> heads(2, policy.head);
    const cpu::Prediction blocks =
        cpu::predict_blocks(c.params, selector_of(heads, by_error ? Ranking::error : Ranking::mass), cpu::serial);
    const Case::Output expected = c.reference(blocks.map);
    EXPECT_TRUE(near(caller.out, expected.out, kTolerance)) << policy.selection << policy.ranking;
    EXPECT_EQ(static_cast<int64_t>(caller.counts[SPARSEREEL_COUNT_KEPT]), expected.counts.kept_blocks);
    EXPECT_EQ(static_cast<int64_t>(caller.counts[SPARSEREEL_COUNT_MEANS]), expected.counts.mean_blocks);
    EXPECT_NEAR(static_cast<double>(caller.counts[SPARSEREEL_COUNT_ERROR]) * 0x1p-24, blocks.sum_error, 1e-6);
    EXPECT_LT(expected.counts.kept_blocks, 2 * 2 * 11 * 11);
  }
}

TEST(AttentionLibrary, SharesHeadsOfKeysAndValues) {
  for (const int quantized : {0, 1}) {
    const cpu::GroupedCase groups({.queries = 300, .keys = 300});
    Caller caller(groups.fewer()), all(groups.repeated);
    for (Caller* each : {&caller, &all}) {
      each->call.quantized = quantized;
      each->call.policy.all.topk = 0.4;
      each->run();
    }
    if (quantized == 0) {
      EXPECT_EQ(caller.out, all.out);
      EXPECT_EQ(caller.lse, all.lse);
    } else {  // different 8-bit keys: channels are balanced for all heads of a group together
      EXPECT_LT(cpu::relative_l1(caller.out, all.out), 0.05);
    }
    EXPECT_EQ(caller.counts[SPARSEREEL_COUNT_KEPT], all.counts[SPARSEREEL_COUNT_KEPT]);
    EXPECT_LT(2 * caller.workspace.size(), all.workspace.size());
  }
}

/// Imitates a program that was compiled with a header without the field kv_heads, so its struct ends before the field.
TEST(AttentionLibrary, AcceptsCallsOfItsFirstHeader) {
  constexpr size_t first = offsetof(sparsereel_attention_call, kv_heads);
  Case c({.queries = 130, .keys = 130});
  Caller caller(c);
  keep_all(caller.call);
  const std::vector<float> expected = caller.run();
  sparsereel_attention_call old = caller.call;
  old.size = first;
  old.kv_heads = 77;  // memory behind the old struct, which may hold anything
  std::fill(caller.out.begin(), caller.out.end(), NAN);
  ASSERT_EQ(
      sparsereel_attention_run(caller.library.get(), &old, caller.workspace.data(), caller.workspace.size(), nullptr),
      SPARSEREEL_OK);
  EXPECT_EQ(caller.out, expected);
  ASSERT_EQ(sparsereel_attention_call_init(&old, first), SPARSEREEL_OK);
  EXPECT_EQ(old.size, first);
  EXPECT_EQ(old.kv_heads, 77);
  EXPECT_EQ(old.map_rows, 64);
}

TEST(AttentionLibrary, AcceptsADifferentPolicyForEachHead) {
  Case c({.queries = 700, .keys = 700});
  Caller caller(c);
  sparsereel_head_policy heads[2] = {caller.call.policy.all, caller.call.policy.all};
  heads[0].selection = SPARSEREEL_DENSE;
  heads[1].topk = 0.1;
  caller.call.policy.heads = heads;
  caller.run();
  c.params.mean_cell = 16;
  const std::vector<HeadPolicy> policies = {HeadPolicy{.dense = true}, HeadPolicy{.topk = 0.1}};
  const cpu::Prediction blocks = cpu::predict_blocks(c.params, selector_of(policies, Ranking::error), cpu::serial);
  EXPECT_TRUE(near(caller.out, c.reference(blocks.map).out, kTolerance));
}

TEST(AttentionLibrary, ObeysAMapOf64Or128Queries) {
  Case c({.queries = 300, .keys = 300});
  // One row per 64 queries; `given` has every second row, for 128 queries each.
  const BlockMap tall = cpu::random_map(c.params);
  std::vector<uint8_t> given;
  BlockMap wide = tall;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 5; ++i) {
        std::copy(tall.row(b, h, i / 2 * 2), tall.row(b, h, i / 2 * 2) + 5, wide.row(b, h, i));
        if (i % 2 == 0) given.insert(given.end(), tall.row(b, h, i), tall.row(b, h, i) + 5);
      }
  for (uint8_t& bit : given) bit = bit != 0 ? 255 : 0;
  Caller caller(c);
  caller.call.policy.dropped = SPARSEREEL_NOTHING;
  caller.call.policy.ranking = SPARSEREEL_BY_MASS;
  caller.call.map = tall.bits.data();
  EXPECT_TRUE(near(caller.run(), c.naive(tall).out, kTolerance));
  caller.call.map = given.data();
  caller.call.map_rows = 128;
  EXPECT_TRUE(near(caller.run(), c.naive(wide).out, kTolerance));
  caller.call.policy.dropped = SPARSEREEL_MEANS;
  caller.run();
  c.params.mean_cell = 16;
  EXPECT_TRUE(near(caller.out, c.reference(wide).out, kTolerance));
}

TEST(AttentionLibrary, EmulatesEightBitsIfQuantized) {
  Case c({.queries = 200, .keys = 200});
  Caller caller(c);
  caller.call.quantized = 1;
  caller.run();
  const Case::Output expected = c.reference(cpu::visible_blocks(c.params), cpu::kNeverSkip, cpu::Arithmetic::int8);
  EXPECT_LT(cpu::relative_l1(caller.out, expected.out), 1e-3);
  EXPECT_GT(cpu::relative_l1(caller.out, c.naive(cpu::visible_blocks(c.params)).out), 1e-3);
}

TEST(AttentionLibrary, WritesToAnyOrderOfBatchTokensAndHeads) {
  Case c({.queries = 90, .keys = 90});
  Caller caller(c);
  const std::vector<float> usual = caller.run();
  caller.call.out = {caller.out.data(), 2 * 90 * 64, 64, 90 * 64};  // [batch, heads, tokens, head_dim]
  const std::vector<float> other = caller.run();
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 90; ++i)
      for (int64_t h = 0; h < 2; ++h)
        EXPECT_TRUE(std::equal(&usual[((b * 90 + i) * 2 + h) * 64], &usual[((b * 90 + i) * 2 + h) * 64] + 64,
                               &other[((b * 2 + h) * 90 + i) * 64]));
}

/// Returns the view's tensor [batch, tokens, heads, head_dim] in 16 bits, contiguous.
std::vector<uint16_t> narrowed(const cpu::View<const float>& view, const Case& c, uint16_t (*convert)(float)) {
  std::vector<uint16_t> all;
  for (int64_t b = 0; b < c.params.batch; ++b)
    for (int64_t i = 0; i < c.params.queries; ++i)
      for (int64_t h = 0; h < c.params.heads; ++h)
        for (int64_t d = 0; d < c.params.head_dim; ++d) all.push_back(convert(view.row(b, i, h)[d]));
  return all;
}

TEST(AttentionLibrary, RoundsTheResultOfWidened16BitTensors) {
  Case c({.queries = 130, .keys = 130});
  struct Element {
    sparsereel_element element;
    uint16_t (*to)(float);
    float (*from)(uint16_t);
  };
  for (const auto& [element, to, from] : {Element{SPARSEREEL_FP16, fp16_of_float, float_of_half},
                                          Element{SPARSEREEL_BF16, bf16_of_float, float_of_bf16}}) {
    Caller caller(c);
    std::vector<uint16_t> q = narrowed(c.params.q, c, to), k = narrowed(c.params.k, c, to),
                          v = narrowed(c.params.v, c, to), out(q.size());
    std::vector<float> wide[3];
    for (const auto& [narrow, copy] : {std::pair(&q, &wide[0]), std::pair(&k, &wide[1]), std::pair(&v, &wide[2])})
      std::transform(narrow->begin(), narrow->end(), std::back_inserter(*copy), from);
    const sparsereel_tensor rows = caller.call.out;
    const auto at = [&](void* data) { return sparsereel_tensor{data, rows.batch_stride, rows.token_stride, 64}; };
    caller.call.q = at(wide[0].data());
    caller.call.k = at(wide[1].data());
    caller.call.v = at(wide[2].data());
    const std::vector<float> exact = caller.run();
    caller.call.q = at(q.data());
    caller.call.k = at(k.data());
    caller.call.v = at(v.data());
    caller.call.out = at(out.data());
    caller.call.element = element;
    caller.run();
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], to(exact[i])) << i;
  }
}

TEST(AttentionLibrary, AppliesThePrologueBeforeAttention) {
  Case c({.queries = 80, .keys = 80, .head_dim = 32});
  const int64_t text = 7, video = 80 - text;
  std::vector<float> weight(64), cosines, sines;
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5F + 0.01F * static_cast<float>(i);
  for (int64_t t = 0; t < video; ++t)
    for (int64_t d = 0; d < 32; ++d) {
      const double angle = static_cast<double>(t) / std::pow(10.0, static_cast<double>(d % 16) / 16);
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  Caller caller(c);
  keep_all(caller.call);
  caller.call.text_tokens = text;
  caller.call.prologue.norm = SPARSEREEL_RMS_NORM;
  caller.call.prologue.across_heads = 1;
  caller.call.prologue.q_weight = weight.data();
  caller.call.prologue.rotary_cos = cosines.data();
  caller.call.prologue.rotary_sin = sines.data();
  caller.call.prologue.interleaved = 0;
  caller.run();
  // The expected result: applies the prologue to the inputs in place.
  const auto apply = [&](const cpu::View<const float>& view, bool weighted) {
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t t = 0; t < 80; ++t) {
        double square = 0;
        for (int64_t i = 0; i < 64; ++i) square += std::pow(view.row(b, t, i / 32)[i % 32], 2) / 64;
        for (int64_t h = 0; h < 2; ++h) {
          float* x = c.row(view, b, t, h);
          for (int64_t d = 0; d < 32; ++d)
            x[d] = static_cast<float>(x[d] / std::sqrt(square + 1e-6)) * (weighted ? weight[h * 32 + d] : 1.0F);
          for (int64_t d = 0; t < video && d < 16; ++d) {
            const float first = x[d], second = x[d + 16], cosine = cosines[t * 32 + d], sine = sines[t * 32 + d];
            x[d] = first * cosine - second * sine;
            x[d + 16] = second * cosine + first * sine;
          }
        }
      }
  };
  apply(c.params.q, true);
  apply(c.params.k, false);
  EXPECT_TRUE(near(caller.out, c.naive(cpu::visible_blocks(c.params)).out, kTolerance));
}

TEST(AttentionLibrary, AppliesSeparateTextWeightsAndAnglesPerHead) {
  Case c({.queries = 80, .keys = 80, .head_dim = 32});
  const int64_t text = 7, video = 80 - text;
  std::vector<float> weight(32), text_weight(32), positions, frequencies;
  for (size_t i = 0; i < weight.size(); ++i) {
    weight[i] = 0.5F + 0.01F * static_cast<float>(i);
    text_weight[i] = 1.5F - 0.02F * static_cast<float>(i);
  }
  for (int64_t t = 0; t < video; ++t)
    // The last number is padding, which must not be read.
    for (const int64_t axis : {t / 16, t / 4 % 4 - 2, t % 4 - 2, int64_t{1000}})
      positions.push_back(static_cast<float>(axis));
  for (int64_t i = 0; i < 2 * 3 * 16; ++i) frequencies.push_back(std::sin(static_cast<float>(i)) * 3);
  Caller caller(c);
  keep_all(caller.call);
  caller.call.text_tokens = text;
  caller.call.prologue.norm = SPARSEREEL_RMS_NORM;
  caller.call.prologue.q_weight = weight.data();
  caller.call.parts = {.text_q_weight = text_weight.data(),
                       .text_k_weight = nullptr,
                       .rotary_positions = positions.data(),
                       .rotary_frequencies = frequencies.data()};
  caller.run();
  // The expected result: rotates the inputs in place.
  const auto turn = [&](float* x, int64_t t, int64_t h) {
    for (int64_t i = 0; i < 16; ++i) {
      double angle = 0;
      for (int64_t axis = 0; axis < 3; ++axis) angle += positions[t * 4 + axis] * frequencies[(h * 3 + axis) * 16 + i];
      const double first = x[2 * i], second = x[2 * i + 1];
      x[2 * i] = static_cast<float>(first * std::cos(angle) - second * std::sin(angle));
      x[2 * i + 1] = static_cast<float>(second * std::cos(angle) + first * std::sin(angle));
    }
  };
  const auto apply = [&](const cpu::View<const float>& view, bool weighted) {
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t t = 0; t < 80; ++t)
        for (int64_t h = 0; h < 2; ++h) {
          float* x = c.row(view, b, t, h);
          double square = 0;
          for (int64_t d = 0; d < 32; ++d) square += std::pow(x[d], 2) / 32;
          for (int64_t d = 0; d < 32; ++d)
            x[d] = static_cast<float>(x[d] / std::sqrt(square + 1e-6)) * (!weighted   ? 1.0F
                                                                          : t < video ? weight[d]
                                                                                      : text_weight[d]);
          if (t < video) turn(x, t, h);
        }
  };
  apply(c.params.q, true);
  apply(c.params.k, false);
  EXPECT_TRUE(near(caller.out, c.naive(cpu::visible_blocks(c.params)).out, kTolerance));
}

TEST(AttentionLibrary, GivesTheSameBitsWithAnyNumberOfThreads) {
  Case c({.queries = 400, .keys = 400});
  Caller caller(c);
  const std::vector<float> first = caller.run();
  for (const int threads : {1, 3, 0}) {
    check_attention(sparsereel_attention_set_threads(caller.library.get(), threads));
    EXPECT_EQ(caller.run(), first) << threads;
  }
  std::atomic<int> loops{0};
  check_attention(sparsereel_attention_set_parallel_for(
      caller.library.get(),
      [](void* context, int64_t count, void (*body)(void*, int64_t, int64_t), void* body_context) {
        ++*static_cast<std::atomic<int>*>(context);
        std::thread half([&] { body(body_context, 0, count / 2); });
        body(body_context, count / 2, count);
        half.join();
      },
      &loops));
  EXPECT_EQ(caller.run(), first);
  EXPECT_GT(loops, 0);
}

TEST(AttentionLibrary, LetsThreadsShareAHandle) {
  Case c({.queries = 300, .keys = 300});
  Caller caller(c);
  const std::vector<float> first = caller.run();
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> outs(4, std::vector<float>(first.size()));
  for (std::vector<float>& out : outs) {
    threads.emplace_back([&] {
      AttentionCall call = caller.call;
      call.out.data = out.data();
      call.lse = nullptr;
      call.counts = nullptr;
      std::vector<char> workspace(caller.workspace.size());
      for (int i = 0; i < 5; ++i) caller.library.run(call, workspace.data(), workspace.size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& out : outs) EXPECT_EQ(out, first);
}

TEST(AttentionLibrary, CountsOnlyBlocksThatMasksLeave) {
  Case c({.queries = 200, .keys = 200});
  const std::vector<int64_t> lengths = {64, 200};
  Caller caller(c);
  caller.call.key_lengths = lengths.data();
  int64_t blocks = 0;
  check_attention(sparsereel_attention_total_blocks(caller.library.get(), &caller.call, &blocks));
  EXPECT_EQ(blocks, 2 * (4 * 1 + 4 * 4));
}

TEST(AttentionLibrary, DescribesTheKernelThatRuns) {
  Case c({.queries = 64, .keys = 64});
  Caller caller(c);
  EXPECT_THAT(caller.library.describe(caller.call), ::testing::HasSubstr("cpu block-sparse fp32"));
  EXPECT_THAT(caller.library.describe(caller.call), ::testing::HasSubstr("means of 16 tokens"));
  EXPECT_STREQ(sparsereel_attention_version(), "0.1.0");
}

TEST(AttentionTokenOrder, MatchesTheProgram) {
  const hilbert::Permutation& expected = hilbert::permutation(hilbert::TokenOrder::hilbert, {5, 6, 7});
  std::vector<int64_t> places(210), inverse(210);
  EXPECT_EQ(sparsereel_token_order(SPARSEREEL_HILBERT, 5, 6, 7, places.data(), inverse.data()), SPARSEREEL_OK);
  EXPECT_EQ(places, expected.order);
  EXPECT_EQ(inverse, expected.inverse);
  EXPECT_EQ(token_order(SPARSEREEL_HILBERT, 5, 6, 7), expected.order);
  EXPECT_EQ(token_order(SPARSEREEL_MORTON, 5, 6, 7),
            hilbert::permutation(hilbert::TokenOrder::morton, {5, 6, 7}).order);
  EXPECT_EQ(token_order(SPARSEREEL_TIME_MAJOR, 2, 2, 2), (std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7}));
}

TEST(AttentionTokenOrder, RefusesImpossibleGrids) {
  EXPECT_EQ(sparsereel_token_order(SPARSEREEL_NATIVE, 0, 6, 7, nullptr, nullptr), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_NE(std::string(sparsereel_message()).find("empty side"), std::string::npos);
  EXPECT_EQ(sparsereel_token_order(static_cast<sparsereel_order>(9), 5, 6, 7, nullptr, nullptr),
            SPARSEREEL_BAD_ARGUMENT);
  EXPECT_THROW(token_order(SPARSEREEL_HILBERT, 1 << 20, 1 << 20, 1 << 20), AttentionError);
}

}  // namespace
}  // namespace sparsereel::attention
