// Tests attention in 8 bits on a CPU: the number formats, whether the fast kernels emulate GPUs as the scalar reference
// does, and the error against exact attention.
#include <gtest/gtest.h>

#include "attention/cpu/balance.h"
#include "attention/cpu/quantize.h"
#include "attention_case.h"

namespace sparsereel::attention::cpu {
namespace {

/// Returns every non-negative e4m3 number by the format's definition: exponent bias 7, 3 mantissa bits, 0x7F is NaN.
std::vector<double> e4m3_values() {
  std::vector<double> values;
  for (int code = 0; code < 0x7F; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    values.push_back(exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
  }
  return values;
}

TEST(E4m3, KeepsItsValuesAndRoundsBetweenThemToEven) {
  const std::vector<double> values = e4m3_values();
  ASSERT_EQ(values.back(), 448);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(round_e4m3(values[i]), values[i]);
    EXPECT_EQ(round_e4m3(-values[i]), -values[i]);
    if (i + 1 == values.size()) break;
    const double middle = (values[i] + values[i + 1]) / 2;
    EXPECT_EQ(round_e4m3(middle), i % 2 == 0 ? values[i] : values[i + 1]);
    EXPECT_EQ(round_e4m3(middle * (1 - 1e-9)), values[i]);
    EXPECT_EQ(round_e4m3(middle * (1 + 1e-9)), values[i + 1]);
  }
  EXPECT_EQ(round_e4m3(1e9), 448);
  EXPECT_EQ(round_e4m3(-1e9), -448);
}

TEST(Int8, RoundsToEvenAndClamps) {
  EXPECT_EQ(round_int8(2.5), 2);
  EXPECT_EQ(round_int8(3.5), 4);
  EXPECT_EQ(round_int8(-127.6), -127);
  EXPECT_EQ(round_int8(1e9), 127);
}

TEST(Int8, UsesOneScaleForTheKeysOfOneThread) {
  int64_t members[kKeyGroups] = {};
  for (int64_t key = 0; key < kBlock; ++key) ++members[key_group(key)];
  for (const int64_t count : members) EXPECT_EQ(count, 16);
  EXPECT_EQ(key_group(0), key_group(1));
  EXPECT_EQ(key_group(0), key_group(8));
  EXPECT_NE(key_group(1), key_group(2));
}

void expect_same_arithmetic(Case& c, double error_limit) {
  const BlockMap map = visible_blocks(c.params);
  const Case::Output exact = c.reference(map);
  const Case::Output reference = c.reference(map, kNeverSkip, Arithmetic::int8);
  EXPECT_LT(relative_l1(reference.out, exact.out), error_limit);
  EXPECT_GT(relative_l1(reference.out, exact.out), error_limit / 100) << "nothing was rounded";
  EXPECT_TRUE(near(reference.lse, exact.lse, 0.02));
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(map, kernel, kNeverSkip, Arithmetic::int8);
    EXPECT_LT(relative_l1(fast.out, reference.out), kSameArithmetic) << kernel.name;
    EXPECT_TRUE(near(fast.lse, reference.lse, 1e-3)) << kernel.name;
  }
}

TEST(Quantized, EmulatesTheReferenceOnNormalData) {
  Case c({.queries = 200, .keys = 333});
  expect_same_arithmetic(c, 0.045);
}

TEST(Quantized, EmulatesTheReferenceAtOtherSizes) {
  for (const int64_t head_dim : {16, 40, 128, 256}) {
    Case c({.queries = 65, .keys = 129, .head_dim = head_dim, .heads = 1, .batch = 1});
    expect_same_arithmetic(c, 0.06);
  }
}

TEST(Quantized, RemovesLargeMeansOfKeysAndValuesBySmoothing) {
  Case c({.queries = 130, .keys = 130});
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < 130; ++t)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t d = 0; d < 64; ++d) {
          c.row(c.params.k, b, t, h)[d] += 20.0F * static_cast<float>(d % 3);
          c.row(c.params.v, b, t, h)[d] += 20.0F;
        }
  const BlockMap map = visible_blocks(c.params);
  const Case::Output exact = c.reference(map);
  EXPECT_LT(relative_l1(c.fast(map, tile_kernels().front(), kNeverSkip, Arithmetic::int8).out, exact.out), 1e-3);
}

TEST(Quantized, KeepsThePrecisionOfKeysBesideLoudChannels) {
  for (const int64_t head_dim : {64, 128}) {
    Case c({.queries = 128, .keys = 1500, .head_dim = head_dim, .heads = 1, .batch = 2});
    make_loud_channels(c);
    expect_same_arithmetic(c, 0.046);  // the error is 0.04 without loud channels, and 0.1 without balancing
  }
}

TEST(Quantized, KeepsThePrecisionOfMeansBesideLoudChannels) {
  Case c({.queries = 128, .keys = 1500, .heads = 1, .batch = 1});
  make_loud_channels(c);
  c.params.mean_cell = 16;
  const BlockMap map = random_map(c.params);
  const Case::Output exact = c.reference(map), reference = c.reference(map, kNeverSkip, Arithmetic::int8);
  EXPECT_LT(relative_l1(reference.out, exact.out), 0.046);
  EXPECT_LT(relative_l1(c.fast(map, tile_kernels().front(), kNeverSkip, Arithmetic::int8).out, reference.out),
            kSameArithmetic);
}

TEST(Balance, GivesQueriesAndKeysOfAChannelTheSameSize) {
  const std::vector<double> q = {1, 0.09, 4}, k = {1, 900, 1};
  std::vector<float> balance(3);
  balance_channels(q, k, balance);
  EXPECT_FLOAT_EQ(balance[0], 1);
  EXPECT_FLOAT_EQ(balance[1], 10);
  EXPECT_FLOAT_EQ(balance[2], static_cast<float>(std::sqrt(0.5)));
}

TEST(Balance, StaysFiniteForChannelsOfZeros) {
  const std::vector<double> zeros = {0, 0}, one_zero = {0, 1}, nan = {NAN, 1};
  for (const auto& q : {zeros, one_zero, nan})
    for (const auto& k : {zeros, one_zero, nan}) {
      std::vector<float> balance(2, NAN);
      balance_channels(q, k, balance);
      for (const float s : balance) {
        EXPECT_GE(s, 1.0F / 32);
        EXPECT_LE(s, 32);
      }
    }
}

TEST(Quantized, ObeysMapsMasksAndLengths) {
  Case c({.queries = 150, .keys = 190});
  const int64_t lengths[] = {190, 70};
  c.params.key_lengths = lengths;
  c.params.causal = true;
  const BlockMap map = random_map(c.params);
  const Case::Output reference = c.reference(map, kNeverSkip, Arithmetic::int8);
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(map, kernel, kNeverSkip, Arithmetic::int8);
    EXPECT_LT(relative_l1(fast.out, reference.out), kSameArithmetic) << kernel.name;
    EXPECT_TRUE(near(fast.lse, reference.lse, 1e-3)) << kernel.name;
  }
}

TEST(Quantized, IsNotChangedByPaddedQueries) {
  constexpr int64_t kTokens = 150, kReal = 100;
  const int64_t lengths[] = {kReal, kTokens};
  Case usual({.queries = kTokens, .keys = kTokens}), padded({.queries = kTokens, .keys = kTokens});
  for (Case* c : {&usual, &padded}) c->params.key_lengths = lengths;
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t token = kReal; token < kTokens; ++token)
      // Large values in half of the channels of padding.
      std::fill_n(padded.row(padded.params.q, 0, token, h), 32, 100.0F);
  const BlockMap map = visible_blocks(usual.params);
  const auto real_rows = [](std::vector<float> out) {
    constexpr int64_t kRow = 2 * 64;
    out.erase(out.begin() + kReal * kRow, out.begin() + kTokens * kRow);
    return out;
  };
  EXPECT_EQ(real_rows(usual.reference(map, kNeverSkip, Arithmetic::int8).out),
            real_rows(padded.reference(map, kNeverSkip, Arithmetic::int8).out));
  for (const TileKernel& kernel : tile_kernels())
    EXPECT_EQ(real_rows(usual.fast(map, kernel, kNeverSkip, Arithmetic::int8).out),
              real_rows(padded.fast(map, kernel, kNeverSkip, Arithmetic::int8).out))
        << kernel.name;
}

TEST(Quantized, HandlesConstantInputs) {
  Case c({.queries = 70, .keys = 100, .head_dim = 32});
  std::fill(c.inputs.begin(), c.inputs.end(), 0.75F);  // equal tokens: K and V minus their means are zero
  const BlockMap map = visible_blocks(c.params);
  for (const TileKernel& kernel : tile_kernels())
    EXPECT_TRUE(near(c.fast(map, kernel, kNeverSkip, Arithmetic::int8).out, c.reference(map).out, 1e-6));
}

}  // namespace
}  // namespace sparsereel::attention::cpu
