// Tests ranks that are threads: how they report errors, and that they can make the next video after an error.
#include "models/engine/rank_threads.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "hilbert/error.h"
#include "models/request/denoising_state.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "tests/support/callback_observer.h"
#include "tests/support/golden.h"
#include "tests/support/rank_pipelines.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::pipelines_of;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

Request short_video() {
  Request request;
  request.prompt = "a red circle";
  request.num_inference_steps = 2;
  request.attention_mode = attention::Mode::full;
  request.width = request.height = 64;
  request.num_frames = 5;
  return request;
}

/// A run with an observer, which `set` prepares.
struct ObservedRun {
  explicit ObservedRun(const std::function<void(test::CallbackObserver&)>& set) {
    set(observer);
    run.observer = &observer;
  }
  ObservedRun(const ObservedRun&) = delete;
  ObservedRun& operator=(const ObservedRun&) = delete;

  test::CallbackObserver observer;
  models::Run run;
};

TEST(RankThreads, MakeTheNextVideoAfterAFailureOrCancellation) {
  RankThreads ranks(pipelines_of(2, "cpu"));
  const Request request = short_video();
  const Plan plan = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32")->resolve(request);
  const at::Tensor first = ranks.generate(request, plan, {}, {}).frames;
  const ObservedRun failing([](test::CallbackObserver& observer) {
    observer.on_step = [](const StepDone&) { throw run_failure("no more", "begin again"); };
  });
  EXPECT_TRUE(test::throws_error([&] { ranks.generate(request, plan, {}, failing.run); }, {"no more"}));
  const ObservedRun stopped(
      [](test::CallbackObserver& observer) { observer.on_step = [](const StepDone&) { throw Cancelled{}; }; });
  EXPECT_THROW(ranks.generate(request, plan, {}, stopped.run), Cancelled);
  models::Run cancelled;
  cancelled.cancelled = [] { return true; };
  EXPECT_THROW(ranks.generate(request, plan, {}, cancelled), Cancelled);
  EXPECT_TRUE(ranks.generate(request, plan, {}, {}).frames.equal(first));
}

TEST(RankThreads, NameTheRankWhoseFailureEndedTheVideo) {
  auto all = pipelines_of(2, "cpu");
  // This model has other shapes than rank 0's, so rank 1 fails.
  all.back() = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32");
  const Request request = short_video();
  const Plan plan = all.front()->resolve(request);
  RankThreads ranks(std::move(all));
  EXPECT_TRUE(test::throws_error([&] { ranks.generate(request, plan, {}, {}); }, {"rank 1 (cpu)"}));
}

TEST(RankThreads, MakeTheNextVideoAfterAnEventCancels) {
  RankThreads ranks(pipelines_of(2, "cpu"));
  const Request request = short_video();
  const Plan plan = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32")->resolve(request);
  const at::Tensor first = ranks.generate(request, plan, {}, {}).frames;
  const ObservedRun at_stage([](test::CallbackObserver& observer) {
    observer.on_stage = [](const std::string& stage) {
      if (stage == "denoise") throw Cancelled{};
    };
  });
  const ObservedRun at_piece(
      [](test::CallbackObserver& observer) { observer.on_decoded = [](const PieceProgress&) { throw Cancelled{}; }; });
  for (const ObservedRun* each : {&at_stage, &at_piece}) {
    EXPECT_THROW(ranks.generate(request, plan, {}, each->run), Cancelled);
    EXPECT_TRUE(ranks.generate(request, plan, {}, {}).frames.equal(first));
  }
}

/// Both ranks fail in the same video: the observer stops rank 0, and rank 1 lacks its VAE. When rank 0 begins the next
/// video, it may not know yet that rank 1 failed, too.
TEST(RankThreads, RecoverImmediatelyAfterAnotherRankFails) {
  const test::TemporaryFolder folder;
  std::filesystem::copy(SPARSEREEL_TINY_MODEL, folder / "model", std::filesystem::copy_options::recursive);
  const std::filesystem::path vae = folder / "model" / "vae", away = folder / "vae";
  const ObservedRun failing([](test::CallbackObserver& observer) {
    observer.on_stage = [](const std::string&) { throw run_failure("no more", "begin again"); };
  });
  for (int turn = 0; turn < 8; ++turn) {  // repeats the test, because the race is rare
    auto all = pipelines_of(2, "cpu");
    all.back() = Pipeline::open((folder / "model").string(), "cpu", "fp32");
    const Request request = short_video();
    const Plan plan = all.front()->resolve(request);
    RankThreads ranks(std::move(all));
    std::filesystem::rename(vae, away);
    EXPECT_TRUE(test::throws_error([&] { ranks.generate(request, plan, {}, failing.run); }, {"no more"}));
    std::filesystem::rename(away, vae);
    ASSERT_NO_THROW(ranks.generate(request, plan, {.decode = false}, {})) << turn;
  }
}

/// Two ranks and a single pipeline must report the same events about the text.
TEST(RankThreads, ReportTheSameTextEventsAsOnePipeline) {
  const auto one = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32");
  Request request = short_video();
  request.max_sequence_length = 4;
  request.prompt = "a red circle moving to the right on a blue background";
  const Plan plan = one->resolve(request);
  RankThreads ranks(pipelines_of(2, "cpu"));
  std::vector<std::string> of_one, of_two;
  const auto stages_in = [](std::vector<std::string>& stages) {
    return ObservedRun([&](test::CallbackObserver& observer) {
      observer.on_stage = [&](const std::string& stage) { stages.push_back(stage); };
      observer.on_warning = [&](const std::string& warning) { stages.push_back(warning); };
    });
  };
  const Outcome alone = one->generate(plan, {}, stages_in(of_one).run);
  const Outcome outcome = ranks.generate(request, plan, {}, stages_in(of_two).run);
  EXPECT_THAT(of_two, ElementsAreArray(of_one));
  EXPECT_THAT(outcome.warnings, ElementsAreArray(alone.warnings));
  EXPECT_THAT(outcome.warnings, ElementsAre(HasSubstr("was cut to 4 tokens")));
  EXPECT_THAT(of_one, testing::Contains(HasSubstr("was cut to 4 tokens"))) << "a warning is an event";
  EXPECT_GT(outcome.seconds.text, 0);
}

/// The first video fails on rank 0 before rank 0 encodes the text, while the other ranks are loading.
TEST(RankThreads, MakeTheNextVideoAfterAFailureBeforeTextEncoding) {
  RankThreads ranks(pipelines_of(4, "cpu"));
  const Request request = short_video();
  const Plan plan = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32")->resolve(request);
  const ObservedRun failing([](test::CallbackObserver& observer) {
    observer.on_stage = [](const std::string&) { throw run_failure("no text", "begin again"); };
  });
  EXPECT_TRUE(test::throws_error([&] { ranks.generate(request, plan, {}, failing.run); }, {"no text"}));
  EXPECT_TRUE(ranks.generate(request, plan, {.decode = false}, {}).latents.defined());
}

TEST(RankThreads, SaveCheckpointsOnRequest) {
  RankThreads ranks(pipelines_of(2, "cpu"));
  const Request request = short_video();
  const Plan plan = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32")->resolve(request);
  const at::Tensor first = ranks.generate(request, plan, {.decode = false}, {}).latents.video;
  int64_t kept = 0;
  const ObservedRun keeping(
      [&](test::CallbackObserver& observer) { observer.on_checkpoint = [&](const DenoisingState&) { ++kept; }; });
  models::Run run = keeping.run;
  run.checkpoints = {.every = 1, .last = true};
  EXPECT_TRUE(ranks.generate(request, plan, {.decode = false}, run).latents.video.equal(first));
  EXPECT_EQ(kept, 2);
}

TEST(RankThreads, DoNotDecodeUnlessAsked) {
  RankThreads ranks(pipelines_of(2, "cpu"));
  const Request request = short_video();
  const Plan plan = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32")->resolve(request);
  const Outcome outcome = ranks.generate(request, plan, {.decode = false}, {});
  EXPECT_TRUE(outcome.latents.defined());
  EXPECT_FALSE(outcome.frames.defined());
}

}  // namespace
}  // namespace sparsereel::models
