// Tests names and ranges of policies, which policy a head gets, and the arithmetic of statistics.
#include "attention/policies/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"

namespace sparsereel::attention {
namespace {

using ::testing::HasSubstr;

TEST(Mode, ParsesItsOwnNamesAndRefusesOthers) {
  for (const Mode mode : {Mode::full, Mode::quantized, Mode::sparse, Mode::check})
    EXPECT_EQ(parse_mode(name(mode)), mode);
  try {
    parse_mode("flash");
    FAIL() << "accepted an unknown mode";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "attention flash: one of full, quantized, sparse, check is needed");
  }
}

TEST(Dropped, ParsesItsOwnNamesAndRefusesOthers) {
  for (const Dropped dropped : {Dropped::none, Dropped::mean}) EXPECT_EQ(parse_dropped(name(dropped)), dropped);
  for (const Ranking ranking : {Ranking::mass, Ranking::error}) EXPECT_EQ(parse_ranking(name(ranking)), ranking);
  try {
    parse_dropped("median");
    FAIL() << "accepted an unknown name";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "dropped median: one of mean, none is needed");
  }
  EXPECT_THROW(parse_ranking("none"), Error);
}

TEST(Ranking, IsByErrorWithMeansUnlessThePolicySaysOtherwise) {
  EXPECT_EQ(usual_ranking(Policy{}.dropped), Policy{}.ranking);
  EXPECT_EQ(usual_ranking(Dropped::none), Ranking::mass);
  const bool says_otherwise = Policy{}.dropped == Dropped::mean;
  EXPECT_EQ(usual_ranking(Dropped::mean), says_otherwise ? Policy{}.ranking : Ranking::error);
}

TEST(Policy, NamesTheFieldThatIsOutOfRange) {
  const auto cause = [](const auto& spoil) -> std::string {
    Policy policy;
    spoil(policy);
    try {
      validate(policy);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(cause([](Policy&) {}), "accepted");
  EXPECT_THAT(cause([](Policy& p) { p.defaults.topk = 1.01; }), HasSubstr("topk is 1.01"));
  EXPECT_THAT(cause([](Policy& p) { p.defaults.cdf = 0; }), HasSubstr("cdf is 0"));
  EXPECT_THAT(cause([](Policy& p) { p.defaults.similarity = -2; }), HasSubstr("similarity is -2"));
  EXPECT_THAT(cause([](Policy& p) { p.defaults.pv_threshold = -1; }), HasSubstr("pv_threshold is -1"));
  EXPECT_THAT(cause([](Policy& p) { p.selection_rows = 96; }), HasSubstr("selection_rows is 96"));
  EXPECT_THAT(cause([](Policy& p) { p.dense_steps = -1; }), HasSubstr("dense_steps is -1"));
  EXPECT_THAT(cause([](Policy& p) { p.dense_layers = -1; }), HasSubstr("dense_layers is -1"));
  EXPECT_THAT(cause([](Policy& p) {
                p.per_head = {{HeadPolicy()}, {HeadPolicy(), HeadPolicy{.topk = 7}}};
              }),
              HasSubstr("per_head[1][1].topk is 7"));
}

TEST(Policy, LooksUpHeadsInTheProfile) {
  Policy policy;
  policy.defaults.topk = 0.4;
  EXPECT_EQ(policy.at(99, 0).head(99).topk, 0.4);
  policy.per_head = {{HeadPolicy{.topk = 0.1}, HeadPolicy{.topk = 0.2}}};
  EXPECT_EQ(policy.at(0, 0).head(1).topk, 0.2);
  EXPECT_THROW(policy.at(1, 0), Error);
}

TEST(Statistics, AddUpAndGiveTheShareOfSkippedWork) {
  EXPECT_EQ(Statistics().sparsity(), 0);
  Statistics sum{.total_blocks = 100, .kept_blocks = 60, .skipped_pv_blocks = 20, .calls = 1, .seconds = 1};
  EXPECT_DOUBLE_EQ(sum.sparsity(), 0.5);  // skips 40 of 100 Q.K products and 60 of 100 P.V products
  sum.max_relative_l1 = 0.3;
  sum += Statistics{.total_blocks = 100,
                    .kept_blocks = 100,
                    .calls = 2,
                    .seconds = 0.5,
                    .sum_relative_l1 = 0.25,
                    .max_relative_l1 = 0.2};
  EXPECT_DOUBLE_EQ(sum.sparsity(), 0.25);
  EXPECT_EQ(sum.calls, 3);
  EXPECT_DOUBLE_EQ(sum.seconds, 1.5);
  EXPECT_DOUBLE_EQ(sum.sum_relative_l1, 0.25);
  EXPECT_DOUBLE_EQ(sum.max_relative_l1, 0.3);
}

}  // namespace
}  // namespace sparsereel::attention
