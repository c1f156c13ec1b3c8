// Tests how a run divides the memory of GPU and host, for many sizes of GPUs, models and hosts.
#include "models/engine/memory_decision.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace sparsereel::models {
namespace {

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

/// Returns the facts of Wan 14B for 81 frames of 832 x 480, with both guidance passes in one batch. `gpu` and `host`
/// are in GiB. A block has 351.3 million parameters.
MemoryFacts wan(double gpu, double bytes_a_parameter, double host, int64_t experts = 1) {
  return {.gpu = gpu * kGibibyte,
          .host_free = (host - 2) * kGibibyte,
          .host_total = host * kGibibyte,
          .blocks = 40,
          .block = 351.3e6 * bytes_a_parameter,
          .rest = 0.47e9,
          .experts = experts,
          .step = 3.4e9,
          .text = 11.4e9,
          .vae = 0.25e9,
          .decode = 8e9,
          .passes = 1,
          .pinned_rate = 25e9,
          .compute = 2};
}

constexpr std::array kGpus = {8.0, 12.0, 16.0, 24.0, 80.0};
constexpr std::array kHosts = {16.0, 32.0, 64.0, 128.0};  // host memory in GiB; kGpus is in GiB, too

template <typename Check>
void for_each_machine(const Check& check) {
  for (const double bytes : {1.0, 2.0})
    for (const int64_t experts : {1, 2})
      for (const double gpu : kGpus)
        for (const double host : kHosts) {
          SCOPED_TRACE(std::to_string(bytes) + " bytes, " + std::to_string(experts) + " experts, GPU " +
                       std::to_string(gpu) + ", host " + std::to_string(host));
          check(wan(gpu, bytes, host, experts));
        }
}

/// Returns the bytes that a step copies to the GPU. Bytes that are copied more slowly have a larger weight.
double cost(const MemoryPlan& plan) {
  return static_cast<double>(plan.streamed() + 2 * plan.pageable + 50 * plan.from_file);
}

TEST(MemoryDecision, KnowsIfTheTextEncoderCanStay) {
  const auto can_stay = [](const MemoryFacts& facts) { return is_same_with_less(facts, decide(facts), facts.text); };
  EXPECT_TRUE(can_stay(wan(80, 2, 64)));
  EXPECT_FALSE(can_stay(wan(40, 2, 64))) << "it would take the place of blocks";
  EXPECT_FALSE(can_stay(wan(24, 2, 64)));
  MemoryFacts facts = wan(80, 2, 64);
  const MemoryPlan plan = decide(facts);
  facts.step = 20e9;
  EXPECT_TRUE(is_same_with_less(facts, plan, facts.text)) << "another video with the same places";
  facts.step = 50e9;
  EXPECT_FALSE(is_same_with_less(facts, plan, facts.text));
}

TEST(MemoryDecision, KeepsAllBlocksOnALargeGpu) {
  for (const double bytes : {1.0, 2.0}) {
    const MemoryPlan plan = decide(wan(80, bytes, 64));
    EXPECT_EQ(plan.resident, 40);
    EXPECT_FALSE(plan.streams_text || plan.tiles || plan.frees_vae);
    EXPECT_EQ(plan.pinned_bytes, 0U);
    EXPECT_DOUBLE_EQ(plan.step_seconds, 2);
    EXPECT_TRUE(plan.fits);
  }
}

TEST(MemoryDecision, StreamsWhatDoesNotFit) {
  struct Row {
    double gpu, bytes;
    int64_t least, most;  // bounds on the number of blocks that stay on the GPU
  };
  for (const Row& row : {Row{24, 1, 40, 40}, Row{16, 1, 30, 37}, Row{12, 1, 20, 25}, Row{8, 1, 6, 12},
                         Row{24, 2, 25, 30}, Row{16, 2, 14, 18}, Row{12, 2, 8, 12}, Row{8, 2, 2, 5}}) {
    const MemoryPlan plan = decide(wan(row.gpu, row.bytes, 64));
    EXPECT_GE(plan.resident, row.least) << row.gpu << " " << row.bytes;
    EXPECT_LE(plan.resident, row.most) << row.gpu << " " << row.bytes;
    EXPECT_TRUE(plan.fits);
  }
}

TEST(MemoryDecision, LeavesRoomForAStepAndTwoBuffers) {
  for_each_machine([](const MemoryFacts& facts) {
    const MemoryPlan plan = decide(facts);
    if (plan.fits) {
      EXPECT_LE(static_cast<double>(plan.weight_bytes) + facts.step, facts.gpu - 0.39 * kGibibyte);
    }
  });
}

TEST(MemoryDecision, LocksAtMostHalfOfTheHost) {
  for_each_machine([](const MemoryFacts& facts) {
    for (const MemoryPlan& plan : {decide(facts), decide_without_blocks(facts)}) {
      EXPECT_LE(static_cast<double>(plan.pinned_bytes), facts.host_total / 2);
      EXPECT_LE(static_cast<double>(plan.host_bytes), facts.host_free);
      EXPECT_LE(plan.pageable + plan.from_file, plan.streamed());
    }
  });
}

TEST(MemoryDecision, LocksTheFreeMemoryAloneIfOtherProgramsHoldTheRest) {
  MemoryFacts facts = wan(8, 2, 128);
  facts.host_free = 12 * kGibibyte;
  const MemoryPlan plan = decide(facts);
  EXPECT_LE(static_cast<double>(plan.host_bytes), 9 * kGibibyte);
  EXPECT_GT(plan.from_file, 0);
  EXPECT_EQ(plan.step_seconds, 0) << "the rate of the disk is unknown";
}

TEST(MemoryDecision, IsNeverSlowerWithMoreMemory) {
  for (const double bytes : {1.0, 2.0})
    for (const int64_t experts : {1, 2}) {
      for (const double host : kHosts) {
        MemoryPlan before = decide(wan(6, bytes, host, experts));
        for (double gpu = 6.1; gpu < 40; gpu += 0.1) {
          const MemoryPlan plan = decide(wan(gpu, bytes, host, experts));
          EXPECT_LE(cost(plan), cost(before)) << gpu << " GiB, host " << host;
          EXPECT_LE(plan.streams_text, before.streams_text);
          EXPECT_LE(plan.tiles, before.tiles);
          before = plan;
        }
      }
      for (const double gpu : kGpus) {
        MemoryPlan before = decide(wan(gpu, bytes, 8, experts));
        for (double host = 9; host < 140; host += 1) {
          const MemoryPlan plan = decide(wan(gpu, bytes, host, experts));
          EXPECT_LE(cost(plan), cost(before)) << gpu << " GiB, host " << host;
          EXPECT_GE(plan.experts, before.experts);
          before = plan;
        }
      }
    }
}

TEST(MemoryDecision, PrefersPageLockedMemoryThenPageableThenTheFile) {
  const MemoryPlan large = decide(wan(8, 2, 128)), middle = decide(wan(8, 2, 32)), small = decide(wan(8, 2, 16));
  EXPECT_EQ(large.pageable, 0);
  EXPECT_EQ(large.from_file, 0);
  EXPECT_GT(middle.pageable, 0);
  EXPECT_GT(small.from_file, 0);
  EXPECT_LE(small.resident, middle.resident) << "a block from the file needs a place of its own";
}

TEST(MemoryDecision, KeepsBothExpertsOnlyIfOneCostsNothing) {
  EXPECT_EQ(decide(wan(80, 1, 64, 2)).experts, 2);
  EXPECT_EQ(decide(wan(80, 2, 64, 2)).experts, 2);
  EXPECT_EQ(decide(wan(40, 2, 64, 2)).experts, 1);
  EXPECT_EQ(decide(wan(16, 2, 128, 2)).experts, 1) << "its blocks on the GPU must leave";
  EXPECT_EQ(decide_without_blocks(wan(16, 1, 128, 2)).experts, 2);
  EXPECT_EQ(decide_without_blocks(wan(16, 2, 64, 2)).experts, 1);
}

TEST(MemoryDecision, StreamsTheTextEncoderAndTilesIfAQuarterWouldNotStayFree) {
  EXPECT_FALSE(decide(wan(24, 1, 64)).streams_text);
  EXPECT_TRUE(decide(wan(12, 1, 64)).streams_text);
  EXPECT_FALSE(decide(wan(24, 1, 64)).tiles);
  EXPECT_TRUE(decide(wan(8, 1, 64)).tiles);
  MemoryFacts one_size = wan(8, 1, 64);
  one_size.has_tiles = false;
  EXPECT_FALSE(decide(one_size).tiles) << "tiles of one size save nothing";
  EXPECT_FALSE(decide_without_blocks(one_size).tiles);
}

TEST(MemoryDecision, SaysThatMemoryMayNotSuffice) {
  EXPECT_FALSE(decide(wan(4, 2, 64)).fits);
  EXPECT_EQ(decide(wan(4, 2, 64)).resident, 0);
}

TEST(MemoryDecision, ExpectsTheLongerOfCopyingAndComputing) {
  MemoryFacts facts = wan(8, 2, 128);
  const MemoryPlan plan = decide(facts);
  EXPECT_DOUBLE_EQ(plan.step_seconds, 2) << "copies are hidden";
  facts.compute = 0.1;
  const double copied = static_cast<double>(plan.streamed()) * facts.block / facts.pinned_rate;
  EXPECT_DOUBLE_EQ(decide(facts).step_seconds, copied);
  facts.passes = 2;
  EXPECT_DOUBLE_EQ(decide(facts).step_seconds, 2 * copied);
  facts.pinned_rate = 0;
  EXPECT_EQ(decide(facts).step_seconds, 0);
}

TEST(MemoryDecision, TakesEverSmallerChoicesUntilNoBlockIsLeft) {
  for_each_machine([](const MemoryFacts& facts) {
    MemoryPlan now = decide(facts);
    int choices = 0;
    while (const std::optional<MemoryPlan> next = smaller(facts, now)) {
      EXPECT_LT(next->resident, now.resident);
      EXPECT_LT(next->weight_bytes, now.weight_bytes);
      EXPECT_LE(static_cast<double>(next->pinned_bytes), facts.host_total / 2);
      now = *next;
      ASSERT_LT(++choices, 20);
    }
    EXPECT_LE(now.resident, 1) << "the buffers take as much as the last block";
  });
}

TEST(MemoryDecision, HasNoSmallerChoiceForTwoBlocks) {
  MemoryFacts facts = wan(80, 1, 64);
  facts.blocks = 2;
  EXPECT_FALSE(smaller(facts, decide(facts)));
}

}  // namespace
}  // namespace sparsereel::models
