// Tests that the host's memory is divided among the processes that share it.
#include "models/engine/memory_facts.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "models/engine/pipeline.h"
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

/// Counts the operations of libtorch in this thread while it lives.
class CountedOperations {
 public:
  CountedOperations() {
    count = 0;
    const auto add_one = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
      ++count;
      return nullptr;
    };
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(add_one));
  }
  ~CountedOperations() { at::removeCallback(handle_); }
  CountedOperations(const CountedOperations&) = delete;
  CountedOperations& operator=(const CountedOperations&) = delete;

  static inline thread_local int64_t count = 0;

 private:
  at::CallbackHandle handle_;
};

TEST(MemoryFacts, DescribeTheModelOnce) {
  Request request;
  request.device = "cpu";
  request.max_vram = 1;
  const auto pipeline = Pipeline::open(Checkpoint::open(SPARSEREEL_TEST_DATA "/pipeline"), request);
  Plan plan = pipeline->resolve(request);
  const CountedOperations counted;
  const std::optional<MemoryPlan> small = pipeline->foreseen_memory(plan);
  EXPECT_GT(CountedOperations::count, 0) << "the parts are described without weights";
  CountedOperations::count = 0;
  plan.latent.height *= 1'000'000;
  const std::optional<MemoryPlan> large = pipeline->foreseen_memory(plan);
  EXPECT_EQ(CountedOperations::count, 0);
  EXPECT_GT(small->resident, large->resident) << "the video still counts";
}

}  // namespace
}  // namespace sparsereel::models
