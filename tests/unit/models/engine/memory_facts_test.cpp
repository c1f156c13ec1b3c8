// Tests that the host's memory is divided among the processes that share it.
#include "models/engine/memory_facts.h"

#include <gtest/gtest.h>

#include "models/store/weights/device.h"

namespace sparsereel::models {
namespace {

TEST(MemoryFacts, DividesTheHostAmongTheProcessesThatPlanWithIt) {
  MemoryFacts alone, one_of_four, rank_of_two;
  add_host(alone);
  share_host_memory(4);
  add_host(one_of_four);
  add_host(rank_of_two, /*ranks=*/2);
  share_host_memory(1);
  EXPECT_GT(alone.host_total, 0);
  EXPECT_DOUBLE_EQ(one_of_four.host_total, alone.host_total / 4);
  EXPECT_DOUBLE_EQ(rank_of_two.host_total, alone.host_total / 8);
  EXPECT_NEAR(one_of_four.host_free, alone.host_free / 4, alone.host_total / 40);
}

}  // namespace
}  // namespace sparsereel::models
