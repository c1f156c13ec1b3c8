// libsparsereel as a program sees it: linked to the shared library alone, through its one header.
#include <sparsereel.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace sparsereel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kModel = std::string(SPARSEREEL_TEST_DATA) + "/pipeline";

VideoRequest small() {
  VideoRequest request;
  request.prompt = "a red circle";
  request.steps = 2;
  request.width = 32;
  return request;
}

Failure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure;
  }
  return {0, "no failure", ""};
}

TEST(Library, MakesTheSameVideoOfTheSameRequest) {
  TextToVideo model(kModel, {.device = "cpu"});
  const Video a = model.generate(small()), b = model.generate(small());
  EXPECT_EQ((std::vector{a.frames, a.height, a.width}), (std::vector<int64_t>{9, 64, 32}));
  ASSERT_EQ(a.pixels.size(), 9U * 64 * 32 * 3);
  EXPECT_EQ(a.pixels, b.pixels);
  EXPECT_GE(*std::min_element(a.pixels.begin(), a.pixels.end()), 0);
  EXPECT_LE(*std::max_element(a.pixels.begin(), a.pixels.end()), 1);
  VideoRequest other = small();
  other.seed = 43;
  EXPECT_NE(model.generate(other).pixels, a.pixels);
  EXPECT_TRUE(a.warnings.empty());
}

TEST(Library, TellsStepsAndEndsWhenToldTo) {
  TextToVideo model(kModel, {.device = "cpu"});
  std::vector<int64_t> steps;
  model.generate(small(), [&](int64_t step, int64_t all) {
    EXPECT_EQ(all, 2);
    steps.push_back(step);
    return true;
  });
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2}));
  for (const int64_t last : {1, 2}) {
    int64_t calls = 0;
    const Failure failure = failure_of([&] {
      model.generate(small(), [&](int64_t step, int64_t) {
        ++calls;
        return step < last;
      });
    });
    EXPECT_EQ(failure.code(), 130);
    EXPECT_EQ(calls, last);
  }
  EXPECT_EQ(model.generate(small()).frames, 9);  // it can be used again
}

TEST(Library, WhatWasMovedFromSaysSo) {
  TextToVideo model(kModel, {.device = "cpu"});
  const TextToVideo other = std::move(model);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is what is tested
  EXPECT_THAT(failure_of([&] { model.generate(small()); }).cause(), HasSubstr("moved from"));
}

TEST(Library, WhatTheCallbackThrowsReachesTheCallerAsItIs) {
  TextToVideo model(kModel, {.device = "cpu"});
  EXPECT_THROW(model.generate(small(), [](int64_t, int64_t) -> bool { throw std::out_of_range("mine"); }),
               std::out_of_range);
}

TEST(Library, FailuresSayWhatTheCommandLineSays) {
  const Failure missing = failure_of([] { TextToVideo("nowhere"); });
  EXPECT_EQ(missing.code(), 2);
  EXPECT_THAT(missing.cause(), HasSubstr("nowhere"));
  EXPECT_EQ(missing.what(), missing.cause() + "\n  remedy: " + missing.remedy());
  EXPECT_THAT(failure_of([] { TextToVideo(kModel, {.device = "tpu"}); }).cause(), StartsWith("--device tpu"));
  EXPECT_THAT(failure_of([] { TextToVideo(kModel, {.threads = -1}); }).cause(), StartsWith("--threads -1"));

  TextToVideo model(kModel, {.device = "cpu"});
  const auto refused = [&](const std::function<void(VideoRequest&)>& change) {
    VideoRequest request = small();
    change(request);
    const Failure failure = failure_of([&] { model.generate(request); });
    EXPECT_EQ(failure.code(), 2);
    return failure.cause();
  };
  EXPECT_THAT(refused([](auto& request) { request.frames = 8; }), StartsWith("--frames 8"));
  EXPECT_THAT(refused([](auto& request) { request.steps = 0; }), StartsWith("--steps 0"));
  EXPECT_THAT(refused([](auto& request) { request.topk = 2; }), HasSubstr("topk"));
  EXPECT_THAT(refused([](auto& request) { request.topk = request.cdf = 0.5; }), HasSubstr("exclude"));
  EXPECT_THAT(refused([](auto& request) { request.attention = "dense"; }), HasSubstr("dense"));
  EXPECT_THAT(refused([](auto& request) { request.token_order = "peano"; }), HasSubstr("peano"));
  EXPECT_THAT(refused([](auto& request) { request.vae_tiling = "maybe"; }), StartsWith("--vae-tiling maybe"));
}

TEST(Library, ChoosesAttentionAsAsked) {
  TextToVideo model(kModel, {.device = "cpu"});
  VideoRequest request = small();
  request.width = request.height = 128;
  request.topk = 0.2;
  EXPECT_GT(model.generate(request).sparsity, 0.1);
  request.attention = "full";
  EXPECT_EQ(model.generate(request).sparsity, 0);
}

}  // namespace
}  // namespace sparsereel
