// Tests the sentence that tells where weights stay during a run, and the values of `offload`.
#include "models/request/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGibibyte = uint64_t{1} << 30;

TEST(MemoryPlan, SaysWhereBlocksStay) {
  const MemoryPlan all = {.blocks = 40, .resident = 40, .gpu_bytes = 80 * kGibibyte, .step_seconds = 2.04};
  EXPECT_EQ(sentence(all), "all 40 blocks of the transformer stay in 80.0 GiB of the GPU; about 2.0 s a step");
  const MemoryPlan some = {.blocks = 40,
                           .resident = 12,
                           .streams_text = true,
                           .tiles = true,
                           .gpu_bytes = 12 * kGibibyte,
                           .pinned_bytes = 10 * kGibibyte,
                           .host_bytes = 11 * kGibibyte};
  EXPECT_EQ(sentence(some),
            "12 of 40 blocks of the transformer stay in 12.0 GiB of the GPU; 28 are copied to it in turn from 11.0 GiB "
            "of host memory (10.0 GiB page-locked); the text encoder runs layer by layer; the video is decoded in "
            "tiles; the time of a step is unknown");
}

TEST(MemoryPlan, SaysWhichBlocksComeFromTheirFile) {
  const MemoryPlan plan = {.blocks = 4, .resident = 1, .from_file = 3, .gpu_bytes = kGibibyte};
  EXPECT_THAT(sentence(plan), HasSubstr("; 3 are read from their file in each step"));
}

TEST(Offload, ReadsItsNamesAndTheValuesOfAFlag) {
  for (const Offload offload : {Offload::automatic, Offload::on, Offload::off})
    EXPECT_EQ(parse_offload(std::string(name(offload))), offload);
  EXPECT_EQ(parse_offload("true"), Offload::on);
  EXPECT_EQ(parse_offload("false"), Offload::off);
  EXPECT_THROW(parse_offload("maybe"), Error);
}

}  // namespace
}  // namespace sparsereel::models
