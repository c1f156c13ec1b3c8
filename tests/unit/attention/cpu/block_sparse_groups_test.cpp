// Tests heads of q that share one head of k and v: compares with a call in which k and v are repeated for each head of
// q.
#include <gtest/gtest.h>

#include "attention_case.h"

namespace sparsereel::attention::cpu {
namespace {

/// Expects the same bits, because in fp32 all products and sums are the same.
void expect_same(Case fewer, Case repeated) {
  for (const BlockMap& map : {visible_blocks(fewer.params), random_map(fewer.params)}) {
    const Case::Output naive = repeated.naive(map), reference = fewer.reference(map);
    if (fewer.params.mean_cell == 0) {
      EXPECT_TRUE(near(reference.out, naive.out, 1e-6));
    }
    EXPECT_EQ(reference.out, repeated.reference(map).out);
    for (const TileKernel& kernel : tile_kernels()) {
      const Case::Output got = fewer.fast(map, kernel, 2), expected = repeated.fast(map, kernel, 2);
      EXPECT_EQ(got.out, expected.out) << kernel.name;
      EXPECT_EQ(got.lse, expected.lse) << kernel.name;
      EXPECT_EQ(got.counts.skipped_pv_blocks, expected.counts.skipped_pv_blocks);
      EXPECT_EQ(got.counts.mean_blocks, expected.counts.mean_blocks);
    }
  }
}

TEST(Groups, MatchRepeatedKeysAndValues) {
  for (const int64_t head_dim : {16, 64, 100}) {
    GroupedCase groups({.queries = 130, .keys = 200, .head_dim = head_dim});
    expect_same(groups.fewer(), groups.repeated);
    groups.repeated.params.mean_cell = 16;
    expect_same(groups.fewer(), groups.repeated);
  }
}

TEST(Groups, ObeyMasks) {
  const int64_t lengths[] = {65, 190};
  GroupedCase groups({.queries = 190, .keys = 190, .head_dim = 32});
  groups.repeated.params.causal = true;
  expect_same(groups.fewer(), groups.repeated);
  groups.repeated.params.key_lengths = lengths;
  groups.repeated.params.mean_cell = 16;
  expect_same(groups.fewer(), groups.repeated);
}

TEST(Groups, ChooseTheSameBlocksAsRepeatedKeysAndValues) {
  GroupedCase groups({.queries = 700, .keys = 700, .head_dim = 32});
  groups.repeated.params.mean_cell = 16;
  groups.repeated.params.text_tokens = 30;
  std::vector<HeadPolicy> policies(GroupedCase::kHeads, {.topk = 0.3});
  for (const bool differ : {false, true}) {
    policies[1].topk = differ ? 0.6 : 0.3;
    policies[4].similarity = differ ? 0.05 : -1;
    for (const Ranking ranking : {Ranking::error, Ranking::mass}) {
      const Selector selector{.heads = policies, .rows = 128, .ranking = ranking};
      const Case fewer = groups.fewer();
      const Prediction got = predict_blocks(fewer.params, selector, serial),
                       expected = predict_blocks(groups.repeated.params, selector, serial);
      EXPECT_EQ(got.map.bits, expected.map.bits);
      EXPECT_EQ(got.sum_error, expected.sum_error);
      EXPECT_LT(count_blocks(got.map), count_blocks(visible_blocks(fewer.params)));
    }
  }
}

/// Expects the fast 8-bit kernels to give the same output as the reference. Their error must be below the bound and not
/// larger than if k and v are repeated.
void expect_near_exact(const GroupedCase& groups, double bound) {
  Case fewer = groups.fewer(), repeated = groups.repeated;
  const BlockMap map = random_map(fewer.params);
  const Case::Output exact = repeated.reference(map);
  const Case::Output reference = fewer.reference(map, kNeverSkip, Arithmetic::int8),
                     usual = repeated.reference(map, kNeverSkip, Arithmetic::int8);
  EXPECT_LT(relative_l1(reference.out, exact.out), bound);
  EXPECT_LT(relative_l1(reference.out, exact.out), 1.05 * relative_l1(usual.out, exact.out));
  EXPECT_TRUE(near(reference.lse, exact.lse, 0.02));
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = fewer.fast(map, kernel, kNeverSkip, Arithmetic::int8);
    EXPECT_LT(relative_l1(fast.out, reference.out), 1e-3) << kernel.name;
    EXPECT_TRUE(near(fast.lse, reference.lse, 1e-3)) << kernel.name;
  }
}

TEST(Groups, StayNearExactAttentionInEightBits) {
  GroupedCase groups({.queries = 130, .keys = 200});
  expect_near_exact(groups, 0.05);
  groups.repeated.params.mean_cell = 16;
  expect_near_exact(groups, 0.06);
}

// All heads of a group read the same 8-bit keys, so the keys' channels are balanced for the queries of all these heads.
TEST(Groups, BalanceChannelsForAllTheirHeads) {
  GroupedCase groups({.queries = 128, .keys = 1500});
  make_loud_channels(groups.repeated);
  expect_near_exact(groups, 0.046);
}

TEST(Groups, StoreKeysAndValuesOnce) {
  const GroupedCase groups({.queries = 100, .keys = 500});
  for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::int8})
    EXPECT_EQ(GroupedCase::kGroup * block_sparse_scratch_floats(groups.fewer().params, arithmetic),
              block_sparse_scratch_floats(groups.repeated.params, arithmetic));
}

}  // namespace
}  // namespace sparsereel::attention::cpu
