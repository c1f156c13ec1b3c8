// Tests how `bench pipeline --gpus` combines its measurements with the predicted cost of exchanges between GPUs.
#include "app/lab/bench/rank_stages.h"

#include <gtest/gtest.h>

#include "app/links.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;

Row measured(Mode mode, int64_t gpus, double ms, double decode, bool grouped = false) {
  Row row = rank_row({.mode = mode}, {.gpus = gpus, .together = gpus > 1 || grouped});
  row.update(time_fields(spread({ms})));
  row["decode_seconds"] = decode;
  return row;
}

const VideoCost kVideo = {.tokens = 32760, .layers = 40, .heads = 40, .channels = 5120, .passes = 2};

TEST(CompareCounts, ComparesWithTheFirstCountAndWithFullAttentionOnAsManyGpus) {
  Rows rows = {measured(Mode::full, 1, 1000, 4), measured(Mode::sparse, 1, 500, 4), measured(Mode::full, 2, 500, 2),
               measured(Mode::sparse, 2, 400, 2.5)};
  compare_counts(rows, kVideo, 0, 50, 2000);
  EXPECT_TRUE(rows[0]["scaling"].is_null());
  EXPECT_DOUBLE_EQ(rows[2]["scaling"], 2);
  EXPECT_DOUBLE_EQ(rows[3]["scaling"], 1.25);
  EXPECT_DOUBLE_EQ(rows[3]["decode_scaling"], 1.6);
  EXPECT_DOUBLE_EQ(rows[1]["speedup"], 2);
  EXPECT_DOUBLE_EQ(rows[3]["speedup"], 1.25);
  EXPECT_DOUBLE_EQ(rows[3]["video_seconds"], 2 + 20 + 2.5);
  EXPECT_TRUE(rows[3]["expected_ms"].is_null()) << "nothing is known of links";
  rows[3]["sound_seconds"] = 0.25;
  compare_counts(rows, kVideo, 0, 50, 2000);
  EXPECT_DOUBLE_EQ(rows[3]["video_seconds"], 2 + 20 + 2.5 + 0.25);
}

TEST(CompareCounts, PredictsStepsFromTheMeasuredStepOfOneGpu) {
  Rows rows = {measured(Mode::full, 1, 1000, 4), measured(Mode::full, 4, 300, 2), measured(Mode::sparse, 4, 200, 2)};
  compare_counts(rows, kVideo, kNvlinkSpeed, 50, 0);
  VideoCost video = kVideo;
  video.step_ms = 1000;
  const RanksCost expected = cost_over_ranks(video, 4, kNvlinkSpeed);
  EXPECT_TRUE(rows[0]["expected_ms"].is_null());
  EXPECT_DOUBLE_EQ(rows[1]["expected_ms"], expected.step_ms);
  EXPECT_DOUBLE_EQ(rows[1]["expected_exchange_ms"], expected.exchange_ms);
  EXPECT_TRUE(rows[2]["expected_ms"].is_null()) << "one alone was not measured";
  EXPECT_DOUBLE_EQ(rows[2]["expected_exchange_ms"], expected.exchange_ms);
}

TEST(CompareCounts, DistinguishesAGroupOfOneFromNoGroup) {
  Rows rows = {measured(Mode::full, 1, 1000, 4), measured(Mode::full, 1, 1010, 4, /*grouped=*/true)};
  rows[0]["note"] = "as it was";
  compare_counts(rows, kVideo, kNvlinkSpeed, 50, 0);
  EXPECT_DOUBLE_EQ(rows[1]["scaling"], 1000.0 / 1010);
  EXPECT_DOUBLE_EQ(rows[1]["speedup"], 1);
}

TEST(CompareCounts, SkipsFailedRows) {
  Row failed = rank_row({.mode = Mode::full}, {.gpus = 2, .together = true});
  failed["note"] = "out of memory";
  Rows rows = {failed, measured(Mode::full, 4, 300, 2)};
  compare_counts(rows, kVideo, kNvlinkSpeed, 50, 0);
  EXPECT_TRUE(rows[0]["speedup"].is_null());
  EXPECT_TRUE(rows[1]["scaling"].is_null());
}

TEST(GpuCounts, AreAListWithoutDuplicates) {
  const auto counts = [](const std::string& list) {
    std::vector<int64_t> all;
    for (const GpuCount& count : gpu_counts({}, {{"gpus", list}})) all.push_back(count.gpus);
    return all;
  };
  EXPECT_EQ(counts("1,4,2,4"), (std::vector<int64_t>{1, 4, 2}));
  for (const char* wrong : {"", "0", "65", "1,", "2.5", "many"})
    EXPECT_TRUE(test::throws_error([&] { counts(wrong); }, {"gpus", "from 1 to 64"})) << wrong;
  EXPECT_FALSE(any_together(gpu_counts({}, {{"gpus", std::nullopt}})));
  EXPECT_TRUE(any_together(gpu_counts({}, {{"gpus", "1,2"}})));
}

}  // namespace
}  // namespace sparsereel::app::bench
