// Tests the queue from which GPUs take the rows of a prompt set.
#include "app/jobs/batch/row_queue.h"

#include <gmock/gmock.h>

#include <set>

namespace sparsereel::app::sets {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<QueuedRow> rows(int64_t count, size_t pipeline = 0, int64_t first = 0) {
  std::vector<QueuedRow> all;
  for (int64_t i = 0; i < count; ++i) all.push_back({first + i, pipeline});
  return all;
}

TEST(RowQueue, GivesEachRowOnceInBatchesThatShrinkToOne) {
  RowQueue queue(rows(16));
  std::multiset<int64_t> given;
  std::vector<size_t> sizes;
  for (int turn = 0; turn < 16 && !queue.is_done(); ++turn) {
    for (int64_t gpu = 0; gpu < 4; ++gpu) {
      const auto taken = queue.take(gpu, 4);
      if (!taken.empty()) sizes.push_back(taken.size());
      given.insert(taken.begin(), taken.end());
      for (const int64_t row : taken) queue.finished(gpu, row);
    }
  }
  EXPECT_TRUE(queue.is_done());
  EXPECT_EQ(given.size(), 16U);
  EXPECT_EQ(std::set(given.begin(), given.end()).size(), 16U);
  EXPECT_EQ(sizes.front(), 3U);
  EXPECT_EQ(sizes.back(), 1U);
}

TEST(RowQueue, ReportsWhichRowsAGpuHolds) {
  RowQueue queue(rows(8));
  EXPECT_THAT(queue.rows_of(1), IsEmpty());
  const auto taken = queue.take(1, 2);
  EXPECT_EQ(queue.rows_of(1), taken);
  for (const int64_t row : taken) queue.finished(1, row);
  EXPECT_THAT(queue.rows_of(1), IsEmpty());
  EXPECT_THAT(queue.rows_of(0), IsEmpty());
}

TEST(RowQueue, GivesRowsOfOnlyOnePipelineAtATime) {
  std::vector<QueuedRow> all = rows(2, 0);
  for (const QueuedRow& row : rows(6, 1, 2)) all.push_back(row);
  RowQueue queue(all);
  EXPECT_THAT(queue.take(0, 1), ElementsAre(0, 1));
}

TEST(RowQueue, GivesTheRowsOfALostGpuBeforeAllOthers) {
  RowQueue queue(rows(8));
  EXPECT_THAT(queue.take(0, 2), ElementsAre(0, 1, 2));
  queue.finished(0, 0);
  EXPECT_THAT(queue.lost(0), IsEmpty());
  EXPECT_FALSE(queue.is_done());
  EXPECT_THAT(queue.take(1, 1), ElementsAre(1));  // given alone, because it may have ended a GPU's process
  EXPECT_THAT(queue.take(2, 1), ElementsAre(2, 3, 4, 5));
}

TEST(RowQueue, GivesUpARowThatEndsTwoGpuProcesses) {
  RowQueue queue(rows(3));
  EXPECT_THAT(queue.take(0, 1), ElementsAre(0, 1));
  EXPECT_THAT(queue.lost(0), IsEmpty());
  EXPECT_THAT(queue.take(1, 1), ElementsAre(0));
  EXPECT_THAT(queue.lost(1), ElementsAre(0));
  EXPECT_THAT(queue.take(2, 1), ElementsAre(1));
  queue.finished(2, 1);
  EXPECT_THAT(queue.take(2, 1), ElementsAre(2));
  queue.finished(2, 2);
  EXPECT_TRUE(queue.is_done());
}

}  // namespace
}  // namespace sparsereel::app::sets
