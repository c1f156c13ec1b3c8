// Compares every fast kernel that this machine can run with the scalar reference, and the reference with a naive
// softmax.
#include "attention/cpu/block_sparse.h"

#include <gtest/gtest.h>

#include "attention_case.h"
#include "hilbert/error.h"

namespace sparsereel::attention::cpu {
namespace {

/// Compares the reference with the naive softmax, and every fast kernel with the reference: for all blocks, and for a
/// random half of them.
void expect_all_agree(Case& c) {
  for (const BlockMap& map : {visible_blocks(c.params), random_map(c.params)}) {
    const Case::Output naive = c.naive(map), reference = c.reference(map);
    EXPECT_TRUE(near(reference.out, naive.out, 1e-6));
    EXPECT_TRUE(near(reference.lse, naive.lse, 1e-6));
    EXPECT_EQ(reference.counts.kept_blocks, count_blocks(map));
    for (const TileKernel& kernel : tile_kernels()) {
      const Case::Output fast = c.fast(map, kernel);
      EXPECT_TRUE(near(fast.out, reference.out, kTolerance)) << kernel.name;
      EXPECT_TRUE(near(fast.lse, reference.lse, kTolerance)) << kernel.name;
      EXPECT_EQ(fast.counts.kept_blocks, reference.counts.kept_blocks);
      EXPECT_EQ(fast.counts.skipped_pv_blocks, 0);
    }
  }
}

class Lengths : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(Lengths, AgreeWithTheReference) {
  const auto [queries, keys] = GetParam();
  Case c({.queries = queries, .keys = keys, .head_dim = 32});
  expect_all_agree(c);
}

TEST_P(Lengths, AgreeUnderACausalMask) {
  const auto [queries, keys] = GetParam();
  Case c({.queries = queries, .keys = keys, .head_dim = 16});
  c.params.causal = true;
  expect_all_agree(c);
}

INSTANTIATE_TEST_SUITE_P(Edges, Lengths,
                         ::testing::Combine(::testing::Values(1, 2, 5, 63, 64, 65, 127, 128, 129),
                                            ::testing::Values(1, 63, 64, 65, 128, 129, 300)));

class HeadDims : public ::testing::TestWithParam<int64_t> {};

TEST_P(HeadDims, AgreeWithTheReference) {
  Case c({.queries = 130, .keys = 200, .head_dim = GetParam()});
  expect_all_agree(c);
}

INSTANTIATE_TEST_SUITE_P(All, HeadDims, ::testing::Values(16, 17, 24, 40, 64, 80, 96, 100, 128, 192, 256));

TEST(BlockSparse, ObeysKeyLengths) {
  Case c({.queries = 100, .keys = 200, .batch = 4});
  const int64_t lengths[] = {0, 1, 64, 150};
  c.params.key_lengths = lengths;
  for (int64_t token = 150; token < 200; ++token)  // padding may hold anything, such as NaN
    for (int64_t b = 0; b < 4; ++b)
      for (int64_t d = 0; d < 64; ++d) c.row(c.params.v, b, token, 0)[d] = c.row(c.params.k, b, token, 1)[d] = NAN;
  expect_all_agree(c);
  c.params.causal = true;
  expect_all_agree(c);
}

TEST(BlockSparse, GivesZerosForRowsWithoutKeys) {
  Case c({.queries = 130, .keys = 130});
  BlockMap map(2, 2, 3, 3, true);
  std::fill(map.row(1, 0, 1), map.row(1, 0, 1) + 3, uint8_t{0});
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(map, kernel);
    EXPECT_TRUE(near(fast.out, c.naive(map).out, kTolerance));
    for (int64_t i = 64; i < 128; ++i) {
      EXPECT_EQ(fast.lse[(1 * 2 + 0) * 130 + i], -std::numeric_limits<float>::infinity());
      for (int64_t d = 0; d < 64; ++d) EXPECT_EQ(fast.out[((1 * 130 + i) * 2 + 0) * 64 + d], 0.0F);
    }
  }
}

TEST(BlockSparse, GivesZerosForCausalRowsBeforeTheFirstKey) {
  Case c({.queries = 200, .keys = 70, .head_dim = 16});
  c.params.causal = true;
  expect_all_agree(c);
  const Case::Output fast = c.fast(visible_blocks(c.params), tile_kernels().front());
  // Query 129 sees keys up to 129 + 70 - 200 = -1: none.
  EXPECT_EQ(fast.lse[129], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(fast.lse[130]));
}

TEST(BlockSparse, SurvivesHugeValues) {
  Case c({.queries = 100, .keys = 190});
  for (float& x : c.inputs) x *= 1e4F;
  for (const BlockMap& map : {visible_blocks(c.params), random_map(c.params)}) {
    const Case::Output naive = c.naive(map);
    for (const TileKernel& kernel : tile_kernels()) {
      // Scores reach 1e9, where neighboring fp32 numbers differ by 64. Softmax then gives all weight to one key, and
      // all kernels must choose the same key.
      EXPECT_TRUE(near(c.fast(map, kernel).out, naive.out, kTolerance)) << kernel.name;
    }
  }
}

TEST(BlockSparse, AveragesValuesWhenAllKeysAreEqual) {
  Case c({.queries = 70, .keys = 300});
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t t = 1; t < 300; ++t) std::copy_n(c.row(c.params.k, b, 0, h), 64, c.row(c.params.k, b, t, h));
  expect_all_agree(c);
}

TEST(BlockSparse, PropagatesNan) {
  Case c({.queries = 70, .keys = 130});
  c.row(c.params.q, 0, 3, 1)[5] = NAN;
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(visible_blocks(c.params), kernel);
    EXPECT_TRUE(std::isnan(fast.out[(3 * 2 + 1) * 64])) << kernel.name;
    EXPECT_FALSE(std::isnan(fast.out[(4 * 2 + 1) * 64])) << kernel.name;
  }
}

/// Returns a case in which all queries are equal, and their scores with the keys of block j are about levels[j] in log2
/// units.
Case stairs(const std::vector<double>& levels) {
  Case c({.queries = 64, .keys = static_cast<int64_t>(levels.size()) * kBlock, .head_dim = 16, .heads = 1, .batch = 1});
  c.params.scale = std::numbers::ln2;
  for (int64_t t = 0; t < c.params.keys; ++t)
    for (int64_t d = 0; d < 16; ++d) {
      if (t < 64) c.row(c.params.q, 0, t, 0)[d] = d == 0 ? 1.0F : 0.0F;
      c.row(c.params.k, 0, t, 0)[d] = d == 0 ? static_cast<float>(levels[static_cast<size_t>(t / kBlock)]) : 0.0F;
    }
  return c;
}

TEST(PvSkip, SkipsBlocksFarBelowTheRunningMaximum) {
  Case c = stairs({0, -14, -16, 3, -11, -13, -40});
  const BlockMap map = visible_blocks(c.params);
  const auto expect_skips = [&](double threshold, int64_t skips) {
    const Case::Output reference = c.reference(map, threshold);
    EXPECT_EQ(reference.counts.skipped_pv_blocks, skips);
    for (const TileKernel& kernel : tile_kernels()) {
      const Case::Output fast = c.fast(map, kernel, threshold);
      EXPECT_EQ(fast.counts.skipped_pv_blocks, skips) << kernel.name << " " << threshold;
      EXPECT_TRUE(near(fast.out, reference.out, kTolerance));
      EXPECT_TRUE(near(fast.lse, reference.lse, kTolerance));
    }
  };
  expect_skips(15, 2);    // skips -16 (the maximum is 0) and -13 (it is 3); the last block is never skipped
  expect_skips(13.5, 4);  // also skips -14 (the maximum is 0) and -11 (it is 3)
  expect_skips(31, 0);
  expect_skips(kNeverSkip, 0);
}

TEST(PvSkip, LeavesTheSkippedMassOutOfTheSum) {
  Case c = stairs({0, -16, -40});
  const Case::Output with_skip = c.reference(visible_blocks(c.params), 10);
  EXPECT_EQ(with_skip.counts.skipped_pv_blocks, 1);
  EXPECT_NEAR(with_skip.lse[0], std::log(64 * (1 + std::exp2(-40))), 1e-6);
}

TEST(PvSkip, NeverSkipsTheOnlyBlock) {
  Case c = stairs({-50});
  EXPECT_EQ(c.reference(visible_blocks(c.params), 0).counts.skipped_pv_blocks, 0);
}

TEST(PvSkip, CountsTheSameSkipsInEveryKernel) {
  Case c({.queries = 300, .keys = 520});
  make_loud_and_quiet(c);
  expect_same_skips(c, random_map(c.params));
}

TEST(ChosenTileKernel, IsTheFastestUnlessTheEnvironmentNamesAnother) {
  const char* variable = "SPARSEREEL_ATTENTION_KERNEL";
  for (const TileKernel& kernel : tile_kernels()) {
    setenv(variable, kernel.name, 1);
    EXPECT_STREQ(chosen_tile_kernel().name, kernel.name);
  }
  setenv(variable, "ampere", 1);  // names a GPU kernel, which does not change the choice on CPUs
  EXPECT_STREQ(chosen_tile_kernel().name, tile_kernels().front().name);
  setenv(variable, "amper", 1);
  EXPECT_THROW(chosen_tile_kernel(), Error);
  unsetenv(variable);
  EXPECT_STREQ(chosen_tile_kernel().name, tile_kernels().front().name);
}

TEST(BlockSparse, GivesTheSameResultTwice) {
  Case c({.queries = 500, .keys = 500});
  const BlockMap map = random_map(c.params);
  const Case::Output once = c.fast(map, tile_kernels().front()), again = c.fast(map, tile_kernels().front());
  EXPECT_EQ(once.out, again.out);
}

}  // namespace
}  // namespace sparsereel::attention::cpu
