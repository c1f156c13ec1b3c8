// Tests that a denoising state can be split into parts, and that joining the parts gives the same state.
#include "models/engine/state_parts.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

DenoisingState some_state() {
  attention::Statistics statistics;
  statistics.*attention::kStatisticsCounts.front() = 7;
  statistics.*attention::kStatisticsMeasures.front() = 0.25;
  return {.step = 2,
          .latents = at::arange(8, at::kFloat).view({2, 4}),
          .scheduler = {{"last", at::ones({3})}},
          .cache = {},
          .generator = at::make_generator<at::CPUGeneratorImpl>().get_state(),
          .per_step = {{statistics, {}}, {{}, {}}},
          .redone_steps = {1},
          .kernel = "portable",
          .warnings = {"a warning"}};
}

TEST(StateParts, RestoreTheSameState) {
  const DenoisingState state = some_state(), again = state_of(parts_of(state), {});
  EXPECT_EQ(again.step, 2);
  EXPECT_TRUE(again.latents.equal(state.latents));
  ASSERT_TRUE(again.scheduler.contains("last"));
  EXPECT_TRUE(again.scheduler.at("last").equal(state.scheduler.at("last")));
  EXPECT_TRUE(again.cache.empty());
  EXPECT_TRUE(again.generator.equal(state.generator));
  ASSERT_EQ(again.per_step.size(), 2U);
  ASSERT_EQ(again.per_step.front().size(), 2U);
  EXPECT_EQ(again.per_step.front().front().*attention::kStatisticsCounts.front(), 7);
  EXPECT_EQ(again.per_step.front().front().*attention::kStatisticsMeasures.front(), 0.25);
  EXPECT_EQ(again.redone_steps, state.redone_steps);
  EXPECT_EQ(again.kernel, "portable");
  EXPECT_EQ(again.warnings, state.warnings);
}

TEST(StateParts, AreRefusedIfTheyContradictEachOther) {
  const auto refuses = [](const auto& change, const char* words) {
    StateParts parts = parts_of(some_state());
    change(parts);
    return test::throws_error([&] { state_of(parts, {}); }, {words});
  };
  EXPECT_TRUE(refuses([](StateParts& parts) { parts.tensors.erase("generator"); }, "generator"));
  EXPECT_TRUE(refuses([](StateParts& parts) { parts.tensors["generator"] = at::ones({4}); }, "generator"));
  EXPECT_TRUE(refuses([](StateParts& parts) { parts.run["step"] = 3; }, "steps contradict"));
  EXPECT_TRUE(refuses([](StateParts& parts) { parts.run["redone_steps"] = {2}; }, "steps contradict"));
  EXPECT_TRUE(refuses(
      [](StateParts& parts) {
        parts.tensors["attention.blocks"] = at::zeros({2, 2, 1}, at::kLong);
      },
      "impossible shape"));
}

}  // namespace
}  // namespace sparsereel::models
