// Tests the warning about videos that would take too long on a CPU.
#include "models/engine/cpu_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/engine/pipeline.h"

namespace sparsereel::models {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CpuTime, WarnsOnlyAboutLongRuns) {
  EXPECT_THAT(slow_warning("it", 1e12, at::kFloat), IsEmpty());
  const std::string text = slow_warning("it", 1e24, at::kFloat);
  EXPECT_THAT(text, HasSubstr("it will take about "));
  EXPECT_THAT(text, HasSubstr(" days on this CPU ("));
  EXPECT_THAT(text, HasSubstr(" GFLOP/s were measured"));
}

TEST(CpuTime, CountsWeightProductsAndAttentionOfEachPass) {
  ModelSpec spec;
  spec.layers = 3, spec.heads = 2, spec.head_dim = 8;
  Plan plan;
  plan.latent = {.frames = 2, .height = 4, .width = 5};
  plan.text_tokens = 10;
  plan.guidance_scale = 1;
  EXPECT_EQ(step_operations(plan, spec, 7), 2.0 * 50 * 7 + 4.0 * 50 * 50 * 3 * 16);
  plan.guidance_scale = 6;
  EXPECT_EQ(step_operations(plan, spec, 7), 2 * (2.0 * 50 * 7 + 4.0 * 50 * 50 * 3 * 16));
}

TEST(CpuTime, DoesNotWarnAboutTheTinyModel) {
  const auto pipeline = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "auto");
  Request request;
  request.num_inference_steps = 25;
  request.num_frames = 33;
  request.width = request.height = 256;
  EXPECT_THAT(pipeline->slow_warning(pipeline->resolve(request)), IsEmpty());
}

}  // namespace
}  // namespace sparsereel::models
