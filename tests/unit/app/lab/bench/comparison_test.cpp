// Tests how rows of `bench quality` are compared: names, differences by prompt, and which row beats which.
#include "app/lab/bench/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using test::throws_error;
using ::testing::ElementsAre;

std::vector<Combination> with_terms(const std::vector<std::vector<std::string>>& terms) {
  std::vector<Combination> rows;
  for (const auto& each : terms) rows.emplace_back().terms = each;
  return rows;
}

TEST(RowNames, ContainOnlyTermsThatDiffer) {
  EXPECT_THAT(names_of(with_terms({{"sparse", "dropped=mean", "topk=0.5"}, {"sparse", "dropped=mean", "topk=0.3"}})),
              ElementsAre("topk=0.5", "topk=0.3"));
  EXPECT_THAT(names_of(with_terms({{"quantized", "cache=0"}, {"sparse", "cache=0", "topk=0.3"}})),
              ElementsAre("quantized", "sparse,topk=0.3"));
  EXPECT_THAT(names_of(with_terms({{"sparse", "topk=0.5"}})), ElementsAre("sparse"));
}

TEST(RowNames, FindTheirRowInAnySpelling) {
  const std::vector<Combination> rows = with_terms({{"quantized", "cache=0"},
                                                    {"sparse", "cache=0", "dense-steps=20%"},
                                                    {"sparse", "cache=0.1", "dense-steps=20%"},
                                                    {"sparse", "cache=0", "dense-steps=0"}});
  const auto found = [&](const std::string& terms) { return find_row(terms, rows, names_of(rows)); };
  EXPECT_EQ(found("quantized"), 0U);
  EXPECT_EQ(found("dense-steps=20%,cache=0"), 1U);
  EXPECT_EQ(found("--cache 0.1, dense_steps 20%"), 2U);
  EXPECT_EQ(found("dense-steps=0"), 3U);
  EXPECT_TRUE(throws_error([&] { found("sparse"); }, {"--against sparse names 3 rows"}));
  EXPECT_TRUE(throws_error([&] { found("topk=0.3"); }, {"--against topk=0.3 names no row"}));
  const std::vector<Combination> nested = with_terms({{"full"}, {"full", "cache=0.1"}});
  EXPECT_EQ(find_row("full", nested, {"full", "full,cache=0.1"}), 0U) << "a whole name is its own";
}

Row of_prompts(const std::vector<double>& psnr) {
  Row row = {{"prompts", Row::array()}};
  for (const double each : psnr) row["prompts"].push_back({{"psnr", each}, {"ssim", nullptr}});
  return row;
}

TEST(PairedDifferences, HaveTheStandardErrorOfTheirMean) {
  Rows rows = {of_prompts({31, 22, 43, 20}), of_prompts({30, 20, 40, 10}), of_prompts({})};
  compare_prompts(rows, 1);
  EXPECT_DOUBLE_EQ(rows[0]["psnr_difference"], 4);  // the mean of 1, 2, 3 and 10
  EXPECT_NEAR(rows[0]["psnr_difference_se"], std::sqrt((9 + 4 + 1 + 36) / 3.0 / 4), 1e-12);
  EXPECT_FALSE(rows[0].contains("ssim_difference")) << "no prompt has one";
  EXPECT_FALSE(rows[1].contains("psnr_difference")) << "it is what others are compared with";
  EXPECT_FALSE(rows[2].contains("psnr_difference")) << "it failed";
}

TEST(PairedDifferences, HaveNoErrorWithASinglePrompt) {
  Rows rows = {of_prompts({31}), of_prompts({30})};
  compare_prompts(rows, 1);
  EXPECT_DOUBLE_EQ(rows[0]["psnr_difference"], 1);
  EXPECT_FALSE(rows[0].contains("psnr_difference_se"));
}

Row timed(const std::string& name, const Row& psnr, const Row& seconds) {
  return {{"name", name}, {"psnr", psnr}, {"denoise_seconds", seconds}, {"full_denoise_seconds", 10.0}};
}

TEST(BeatenRows, AreSlowerAndFurtherFromFullAttentionThanAnotherRow) {
  Rows rows = {timed("best", 48, 6),     timed("even", 48, 7), timed("worse", 40, 7), timed("fast", 30, 2),
               timed("slowest", 60, 11), timed("none", {}, 3), timed("worst", 20, 8)};
  mark_beaten(rows);
  EXPECT_TRUE(rows[0]["beaten_by"].is_null());
  EXPECT_TRUE(rows[1]["beaten_by"].is_null()) << "in one of both only";
  EXPECT_EQ(rows[2]["beaten_by"], "best");
  EXPECT_TRUE(rows[3]["beaten_by"].is_null());
  EXPECT_EQ(rows[4]["beaten_by"], "full");
  EXPECT_FALSE(rows[5].contains("beaten_by"));
  EXPECT_EQ(rows[6]["beaten_by"], "best") << "the nearest of those that beat it";
}

TEST(BeatenRows, AreSlowerByMoreThanTheQuartilesOfTheirTimesExplain) {
  const auto between = [](Row row, const std::string& key, double lower, double upper) {
    row.update({{key + "_lower_quartile", lower}, {key + "_upper_quartile", upper}});
    return row;
  };
  Rows rows = {
      between(timed("best", 48, 6), "denoise_seconds", 5.5, 6.6),
      between(timed("overlaps", 40, 7), "denoise_seconds", 6.5, 7.5),
      between(timed("slower", 40, 7), "denoise_seconds", 6.7, 7.3),
      between(between(timed("like full", 60, 10.5), "denoise_seconds", 10.1, 10.9), "full_denoise_seconds", 9, 10.2)};
  mark_beaten(rows);
  EXPECT_TRUE(rows[0]["beaten_by"].is_null());
  EXPECT_TRUE(rows[1]["beaten_by"].is_null());
  EXPECT_EQ(rows[2]["beaten_by"], "best");
  EXPECT_TRUE(rows[3]["beaten_by"].is_null());
}

}  // namespace
}  // namespace sparsereel::app::bench
