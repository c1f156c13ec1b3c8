// Tests quantiles, and how the contenders of a benchmark take turns.
#include "app/lab/measure/timing.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Spread, TakesTheMiddleOfAnOddCount) {
  const Spread s = spread({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(s.median, 3);
  EXPECT_DOUBLE_EQ(s.lower_quartile, 2);
  EXPECT_DOUBLE_EQ(s.upper_quartile, 4);
  EXPECT_DOUBLE_EQ(s.least, 1);
  EXPECT_DOUBLE_EQ(s.most, 5);
}

TEST(Spread, InterpolatesForAnEvenCount) {
  const Spread s = spread({4, 1, 2, 3});
  EXPECT_DOUBLE_EQ(s.median, 2.5);
  EXPECT_DOUBLE_EQ(s.lower_quartile, 1.75);
  EXPECT_DOUBLE_EQ(s.upper_quartile, 3.25);
}

TEST(Spread, IsTheSameValueAtAllQuantilesOfOneValue) {
  const Spread s = spread({7});
  EXPECT_DOUBLE_EQ(s.median, 7);
  EXPECT_DOUBLE_EQ(s.lower_quartile, 7);
  EXPECT_DOUBLE_EQ(s.most, 7);
}

TEST(Alternate, TakesTurnsOverRotatingBuffers) {
  std::vector<std::string> calls;
  const auto contender = [&calls](const std::string& name) {
    return [&calls, name](int64_t buffer) { calls.push_back(name + std::to_string(buffer)); };
  };
  std::vector<int64_t> rounds;
  Timer timer(at::kCPU);
  const auto measurements = alternate({contender("a"), contender("b")}, {.warmup = 1, .repetitions = 2, .buffers = 3},
                                      timer, [&](int64_t done) { rounds.push_back(done); });
  EXPECT_THAT(calls, ElementsAre("a0", "b1", "a2", "b0", "a1", "b2"));
  EXPECT_THAT(rounds, ElementsAre(0, 1, 2));
  ASSERT_THAT(measurements, SizeIs(2));
  for (const Measurement& measurement : measurements) {
    EXPECT_THAT(measurement.milliseconds, SizeIs(2));
    EXPECT_THAT(measurement.milliseconds, Each(Ge(0)));
  }
}

TEST(Alternate, KeepsTheTimesOfOthersIfOneFails) {
  int failing_calls = 0;
  const TimedCall fails = [&failing_calls](int64_t) {
    if (++failing_calls == 2) throw bad_input("no kernel", "use another");
  };
  Timer timer(at::kCPU);
  const auto measurements =
      alternate({fails, [](int64_t) {}}, {.warmup = 1, .repetitions = 3, .buffers = 1}, timer, [](int64_t) {});
  EXPECT_EQ(failing_calls, 2);
  EXPECT_EQ(measurements[0].failure, "no kernel; use another");
  EXPECT_THAT(measurements[1].failure, IsEmpty());
  EXPECT_THAT(measurements[1].milliseconds, SizeIs(3));
}

TEST(Alternate, RepeatsCallsToFillATurnAndCountsTheLaterHalf) {
  int calls = 0;
  double now = 0;
  const TimedCall quick = [&](int64_t) { now += calls++ < 4 ? 20 : 1; };
  Timer timer(at::kCPU, [&now] { return now; });
  const auto measurements =
      alternate({quick}, {.warmup = 1, .repetitions = 1, .buffers = 1, .turn_ms = 120}, timer, [](int64_t) {});
  // The first call takes 20 ms, so a turn of 120 ms has six calls. Only the last three of these are fast.
  EXPECT_EQ(calls, 7);
  EXPECT_THAT(measurements[0].milliseconds, ElementsAre(1));
}

TEST(FailureOf, TakesTheFirstLineOfErrorsOfLibtorch) {
  EXPECT_EQ(failure_of([] {}), "");
  EXPECT_THAT(failure_of([] { TORCH_CHECK(false, "no backend\nmore"); }), "libtorch: no backend");
  EXPECT_THROW(failure_of([] { throw std::logic_error("a defect"); }), std::logic_error);
}

TEST(CpuTimer, ReturnsTheMeasuredTimesOnce) {
  Timer timer(at::kCPU);
  timer.time([] {});
  EXPECT_THROW(timer.time([] { throw std::logic_error("x"); }), std::logic_error);
  timer.time([] {});
  EXPECT_THAT(timer.finish(), SizeIs(2));
  EXPECT_THAT(timer.finish(), IsEmpty());
}

}  // namespace
}  // namespace sparsereel::app::bench
