// Tests P.V in int8 on a CPU: the rounding of V, whether the fast kernels emulate GPUs as the scalar reference does,
// and the error against exact attention, alone and together with the rounding of Q and K.
#include <gtest/gtest.h>

#include "attention/cpu/quantize.h"
#include "attention_case.h"

namespace sparsereel::attention::cpu {
namespace {

TEST(RoundValues, MakesTheLargestValueOfAChannel127) {
  std::vector<float> values = {1, -254, 0, -2, 127, 0, 0.5F, 2, 0, 0.0079F, 3, 0};  // 4 rows of 3 channels
  std::vector<float> scale(3);
  round_values(values.data(), 4, 3, scale.data());
  EXPECT_EQ(values, std::vector<float>({64, -127, 0, -127, 64, 0, 32, 1, 0, 1, 2, 0}));  // 63.5 and 1.5 round to even
  EXPECT_EQ(scale, std::vector<float>({2.0F / 127, 254.0F / 127, 0}));
}

TEST(RoundValues, NeverReachesMinus128) {
  std::mt19937 generator(1);
  std::lognormal_distribution<float> sizes(0, 15);  // sizes from 1e-28 to 1e28
  for (int i = 0; i < 20000; ++i) {
    std::vector<float> values = {-sizes(generator)}, scale(1);
    const float before = values[0];
    round_values(values.data(), 1, 1, scale.data());
    ASSERT_EQ(values[0], -127) << before;
    ASSERT_FLOAT_EQ(values[0] * scale[0], before);
  }
}

TEST(RoundValues, MarksChannelsWithoutFiniteValuesByTheirScale) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> values = {1, 2, bad, 3}, scale(2);
    round_values(values.data(), 2, 2, scale.data());
    EXPECT_FALSE(std::isfinite(scale[0])) << bad;
    EXPECT_EQ(scale[1], 3.0F / 127);
  }
}

TEST(RoundValues, RoundsValuesToZeroWhoseInverseMayNotBeFinite) {
  std::vector<float> values = {1e-38F, -1e-42F}, scale(1);
  round_values(values.data(), 2, 1, scale.data());
  EXPECT_EQ(values, std::vector<float>({0, 0}));
  EXPECT_TRUE(std::isfinite(scale[0]));
}

void expect_same_arithmetic(Case& c, const BlockMap& map, double error_limit) {
  const Case::Output exact = c.reference(map), reference = c.reference(map, kNeverSkip, Arithmetic::int8_values);
  EXPECT_LT(relative_l1(reference.out, exact.out), error_limit);
  EXPECT_GT(relative_l1(reference.out, exact.out), error_limit / 100) << "nothing was rounded";
  EXPECT_TRUE(near(reference.lse, exact.lse, 0.02));
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(map, kernel, kNeverSkip, Arithmetic::int8_values);
    EXPECT_LT(relative_l1(fast.out, reference.out), kSameArithmetic) << kernel.name;
    EXPECT_TRUE(near(fast.lse, reference.lse, 1e-3)) << kernel.name;
    EXPECT_EQ(fast.counts.mean_blocks, reference.counts.mean_blocks) << kernel.name;
  }
}

TEST(Int8Values, AreEmulatedAsInTheReference) {
  Case c({.queries = 200, .keys = 333});
  expect_same_arithmetic(c, visible_blocks(c.params), 0.016);
  for (const int64_t head_dim : {16, 40, 96, 128, 256}) {
    Case other({.queries = 65, .keys = 129, .head_dim = head_dim, .heads = 1, .batch = 1});
    expect_same_arithmetic(other, visible_blocks(other.params), 0.016);
  }
}

TEST(Int8Values, AreEmulatedAsInTheReferenceBesideLoudChannelsOfK) {
  Case c({.queries = 128, .keys = 1500, .heads = 1, .batch = 2});
  make_loud_channels(c);
  expect_same_arithmetic(c, visible_blocks(c.params), 0.024);
}

TEST(Int8Values, ObeyMapsMasksAndLengths) {
  Case c({.queries = 150, .keys = 190});
  const int64_t lengths[] = {190, 70};
  c.params.key_lengths = lengths;
  c.params.causal = true;
  expect_same_arithmetic(c, random_map(c.params), 0.016);
}

TEST(Int8Values, AreZeroForQueriesWithoutKeys) {
  Case c({.queries = 130, .keys = 70});
  const int64_t lengths[] = {70, 0};
  c.params.key_lengths = lengths;
  c.params.causal = true;  // the first 60 queries see no key
  const BlockMap map = visible_blocks(c.params);
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(map, kernel, kNeverSkip, Arithmetic::int8_values);
    EXPECT_TRUE(near(fast.out, c.reference(map, kNeverSkip, Arithmetic::int8_values).out, kSameArithmetic));
    for (int64_t h = 0; h < 2; ++h) EXPECT_EQ(fast.lse[h * 130 + 59], -INFINITY);
    for (size_t i = 0; i < 60 * 2 * 64; ++i) ASSERT_EQ(fast.out[i], 0);
    for (size_t i = fast.out.size() / 2; i < fast.out.size(); ++i) ASSERT_EQ(fast.out[i], 0);
  }
}

TEST(Int8Values, AreEmulatedAsInTheReferenceForGroupedQueries) {
  const GroupedCase groups({.queries = 100, .keys = 150});
  Case fewer = groups.fewer();
  expect_same_arithmetic(fewer, visible_blocks(fewer.params), 0.016);
}

TEST(Int8Values, RoundMeansAsInTheReference) {
  for (const int64_t cell : {16, 32, 64})
    for (const int64_t head_dim : {16, 64, 128}) {
      SCOPED_TRACE(::testing::Message() << "cells of " << cell << ", head_dim " << head_dim);
      Case c({.queries = 130, .keys = 2200, .head_dim = head_dim, .batch = 1});
      c.params.mean_cell = cell;
      expect_same_arithmetic(c, random_map(c.params), 0.025);
      c.params.causal = true;
      c.params.text_tokens = 100;
      const int64_t length = 2000;
      c.params.key_lengths = &length;
      expect_same_arithmetic(c, random_map(c.params), 0.025);
    }
}

TEST(Int8Values, SkipPvAsTheReferenceDoes) {
  Case c({.queries = 150, .keys = 1500});
  make_loud_and_quiet(c);
  const BlockMap map = visible_blocks(c.params);
  const Case::Output reference = c.reference(map, 2, Arithmetic::int8_values);
  EXPECT_GT(reference.counts.skipped_pv_blocks, 0);
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(map, kernel, 2, Arithmetic::int8_values);
    EXPECT_EQ(fast.counts.skipped_pv_blocks, reference.counts.skipped_pv_blocks);
    EXPECT_LT(relative_l1(fast.out, reference.out), kSameArithmetic);
  }
}

TEST(Int8Values, PassNanOnFromEveryInput) {
  for (const auto input : {&KernelParams::q, &KernelParams::v}) {
    Case c({.queries = 70, .keys = 100, .heads = 1, .batch = 1});
    c.row(c.params.*input, 0, 66, 0)[3] = NAN;
    const BlockMap map = visible_blocks(c.params);
    for (const TileKernel& kernel : tile_kernels()) {
      const std::vector<float> out = c.fast(map, kernel, kNeverSkip, Arithmetic::int8_values).out;
      const bool query = input == &KernelParams::q;
      EXPECT_TRUE(std::isnan(out[66 * 64 + 3])) << kernel.name;
      EXPECT_EQ(std::isfinite(out[66 * 64 + 4]), !query) << kernel.name;
      EXPECT_EQ(std::isfinite(out[20 * 64 + 3]), query) << kernel.name;
    }
  }
}

double relative_l2(const std::vector<float>& actual, const std::vector<float>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / size);
}

/// Returns a case of 4096 keys in which int8 computes Q.K exactly, so only P.V rounds. All elements of q and k are 1 or
/// -1. Every second key is the negative of the key before it, so the mean of keys is zero. `deviation` is the standard
/// deviation of the scores.
Case with_exact_scores(int64_t head_dim, double deviation = 1) {
  constexpr int64_t kQueries = 64;
  Case c({.queries = kQueries, .keys = 4096, .head_dim = head_dim, .heads = 1, .batch = 1});
  for (const auto view : {&KernelParams::q, &KernelParams::k})
    for (int64_t t = 0; t < (view == &KernelParams::q ? kQueries : 4096); ++t)
      for (int64_t d = 0; d < head_dim; ++d) {
        float& x = c.row(c.params.*view, 0, t, 0)[d];
        x = std::copysign(1.0F, x);
        if (view == &KernelParams::k && t % 2 == 1) x = -c.row(c.params.k, 0, t - 1, 0)[d];
      }
  c.params.scale *= deviation;
  return c;
}

/// Values that are hard to round.
enum class Values { normal, loud_token, loud_channel, large_mean, opposite_halves, tiny, huge };
constexpr Values kAllValues[] = {Values::normal,          Values::loud_token, Values::loud_channel, Values::large_mean,
                                 Values::opposite_halves, Values::tiny,       Values::huge};

void make_values(Case& c, Values values, float gain) {
  for (int64_t t = 0; t < c.params.keys; ++t)
    for (int64_t d = 0; d < c.params.head_dim; ++d) {
      float& v = c.row(c.params.v, 0, t, 0)[d];
      if (values == Values::loud_token && t == 1000) v *= gain;
      if (values == Values::loud_channel && d == 5) v *= gain;
      if (values == Values::large_mean) v += gain;
      if (values == Values::opposite_halves) v += t < c.params.keys / 2 ? gain : -gain;
      if (values == Values::tiny) v *= 1e-4F;
      if (values == Values::huge) v *= 1e4F;
    }
}

struct PvErrors {
  double int8, e4m3;
};

PvErrors errors_of(Case& c) {
  const BlockMap map = visible_blocks(c.params);
  const std::vector<float> exact = c.naive(map).out;
  const auto error = [&](Arithmetic arithmetic) {
    return relative_l2(c.fast(map, tile_kernels().front(), kNeverSkip, arithmetic).out, exact);
  };
  return {.int8 = error(Arithmetic::int8_values), .e4m3 = error(Arithmetic::int8)};
}

PvErrors errors_of(int64_t head_dim, Values values, float gain = 1, double deviation = 1) {
  Case c = with_exact_scores(head_dim, deviation);
  make_values(c, values, gain);
  return errors_of(c);
}

// The bounds are 1.1 times the errors that an emulation in double measured with exact scores.
TEST(Int8Values, ErrByAThirdOfE4m3) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    const PvErrors normal = errors_of(head_dim, Values::normal);
    EXPECT_LT(normal.int8, 1.1 * 0.0084);
    EXPECT_GT(normal.e4m3, 3 * normal.int8);
    EXPECT_LT(errors_of(head_dim, Values::loud_token, 30).int8, 1.1 * 0.0116);
    EXPECT_LT(errors_of(head_dim, Values::loud_channel, 30).int8, 1.1 * 0.0089);
    EXPECT_LT(errors_of(head_dim, Values::large_mean, 3).int8, 1.1 * 0.00011);
    EXPECT_LT(errors_of(head_dim, Values::normal, 1, 4).int8, 1.1 * 0.0067);
  }
}

TEST(Int8Values, ErrLessThanE4m3ForValuesThatAreHardToRound) {
  for (const Values values : kAllValues)
    for (const float gain : {20.0F, 100.0F}) {
      const PvErrors errors = errors_of(128, values, gain);
      EXPECT_LT(errors.int8, 0.6 * errors.e4m3) << static_cast<int>(values) << " x " << gain;
    }
}

TEST(Int8Values, ErrByAThirdOfE4m3InAllOnNormalData) {
  Case c({.queries = 128, .keys = 4096, .head_dim = 128, .heads = 1, .batch = 1});
  const PvErrors errors = errors_of(c);
  EXPECT_LT(errors.int8, 1.1 * 0.013);
  EXPECT_GT(errors.e4m3, 2.5 * errors.int8);
}

TEST(Int8Values, GiveTheMeanOfVForConstantInputs) {
  Case c({.queries = 70, .keys = 100, .head_dim = 32});
  std::fill(c.inputs.begin(), c.inputs.end(), 0.75F);
  const BlockMap map = visible_blocks(c.params);
  for (const TileKernel& kernel : tile_kernels())
    EXPECT_TRUE(near(c.fast(map, kernel, kNeverSkip, Arithmetic::int8_values).out, c.reference(map).out, 1e-6));
}

// All weights are 255 and all values of a block are 127 or all are -127, which gives the largest possible integer sums.
TEST(Int8Values, SumTheLargestProductsExactly) {
  Case c({.queries = 70, .keys = 4096, .heads = 1, .batch = 1});
  std::fill(c.inputs.begin(), c.inputs.end(), 1.0F);
  for (int64_t t = 0; t < 4096; ++t)
    for (int64_t d = 0; d < 64; ++d) c.row(c.params.v, 0, t, 0)[d] = t < 3072 ? 3 : -3;
  for (const TileKernel& kernel : tile_kernels())
    for (const float x : c.fast(visible_blocks(c.params), kernel, kNeverSkip, Arithmetic::int8_values).out)
      ASSERT_NEAR(x, 1.5, 1e-5) << kernel.name;
}

// The largest weight is 255. If its exponent were rounded up, it would become 256, which is 0 in a uint8.
TEST(Int8Values, KeepTheLargestWeightForScoresOfAnySize) {
  for (const float size : {1e3F, 1e5F, 1e6F}) {
    SCOPED_TRACE(size);
    Case c({.queries = 64, .keys = 256, .heads = 1, .batch = 1});
    for (int64_t t = 0; t < 64; ++t)
      for (int64_t d = 0; d < 64; ++d) c.row(c.params.q, 0, t, 0)[d] *= size;
    const BlockMap map = visible_blocks(c.params);
    const Case::Output reference = c.reference(map, kNeverSkip, Arithmetic::int8_values);
    for (const TileKernel& kernel : tile_kernels())
      EXPECT_LT(relative_l1(c.fast(map, kernel, kNeverSkip, Arithmetic::int8_values).out, reference.out), 0.01);
  }
}

}  // namespace
}  // namespace sparsereel::attention::cpu
