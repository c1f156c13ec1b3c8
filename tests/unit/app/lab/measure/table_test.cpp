// Tests that every column of a table of `bench` has an explanation, and that a key has the same title and unit in all
// of them, apart from three keys.
#include "app/lab/measure/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "app/lab/bench/rank_stages.h"
#include "app/lab/bench/rows.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Columns, HaveAnExplanationInEveryTable) {
  for (const Columns& table :
       {bench::attention_columns(), bench::quality_columns(), bench::stage_columns(), bench::rank_columns()})
    for (const Column& column : table) EXPECT_FALSE(column.meaning.empty()) << column.key;
}

TEST(Columns, HaveOneTitleAndUnitPerKey) {
  const std::vector<std::string> of_their_table = {"ms", "rel_l1", "step_ms"};  // keys whose title depends on the table
  std::map<std::string, std::pair<std::string, std::string>> known;
  for (const Columns& table :
       {bench::attention_columns(), bench::quality_columns(), bench::stage_columns(), bench::rank_columns()}) {
    for (const Column& column : table) {
      if (std::ranges::find(of_their_table, column.key) != of_their_table.end()) continue;
      const auto same = known.try_emplace(column.key, column.title, column.unit).first->second;
      EXPECT_EQ(same, std::pair(column.title, column.unit)) << column.key;
    }
  }
  EXPECT_EQ(known.at("mean_share").first, "mean share");
  EXPECT_TRUE(test::throws_error([] { columns({"psnr", "none"}); }, {"none"}));
}

TEST(Columns, AreExplainedIfTheirFiguresAreShown) {
  const Rows rows = {{{"topk", 0.5}, {"psnr", 30.0}, {"ssim", nullptr}}};
  const Columns shown = joined({columns({"topk", "psnr", "ssim"}), in_csv({"name"})});
  EXPECT_THAT(explained(shown, rows), ::testing::StartsWith("\n- PSNR dB: "));
  for (const char* other : {"topk", "SSIM", "name"}) EXPECT_THAT(explained(shown, rows), Not(HasSubstr(other)));
  EXPECT_EQ(explained(columns({"topk"}), rows), "");
}

}  // namespace
}  // namespace sparsereel::app
