// Ranks that are threads: what one of them throws, and what comes after it.
#include "models/engine/rank_threads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

std::vector<std::shared_ptr<Pipeline>> pipelines_of(int64_t ranks) {
  std::vector<std::shared_ptr<Pipeline>> all;
  for (const std::string& device : devices_of_threads(ranks, "cpu"))
    all.push_back(Pipeline::open(SPARSEREEL_TINY_MODEL, device, "fp32"));
  return all;
}

Request short_video() {
  Request request;
  request.prompt = "a red circle";
  request.num_inference_steps = 2;
  request.attention_mode = attention::Mode::full;
  request.width = request.height = 64;
  request.num_frames = 5;
  return request;
}

TEST(RankThreads, GoOnAfterWhatEndedAVideo) {
  RankThreads ranks(pipelines_of(2));
  const Plan plan = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32")->resolve(short_video());
  const at::Tensor first = ranks.generate(plan, {}, {}).frames;
  models::Run failing;
  failing.step = [](int64_t, int64_t, double) { throw run_failure("no more", "begin again"); };
  EXPECT_TRUE(test::throws_error([&] { ranks.generate(plan, {}, failing); }, {"no more"}));
  models::Run stopped;
  stopped.step = [](int64_t, int64_t, double) { throw Cancelled{}; };
  EXPECT_THROW(ranks.generate(plan, {}, stopped), Cancelled);
  models::Run cancelled;
  cancelled.cancelled = [] { return true; };
  EXPECT_THROW(ranks.generate(plan, {}, cancelled), Cancelled);
  EXPECT_TRUE(ranks.generate(plan, {}, {}).frames.equal(first));
}

TEST(RankThreads, WhatAnotherRankCannotEndsTheVideoWithItsName) {
  auto all = pipelines_of(2);
  all.back() = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32");  // of other sizes
  const Plan plan = all.front()->resolve(short_video());
  RankThreads ranks(std::move(all));
  EXPECT_TRUE(test::throws_error([&] { ranks.generate(plan, {}, {}); }, {"rank 1 (cpu)"}));
}

TEST(RankThreads, DecodeNothingWhereNobodyAsks) {
  RankThreads ranks(pipelines_of(2));
  const Plan plan = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "fp32")->resolve(short_video());
  const Outcome outcome = ranks.generate(plan, {.decode = false}, {});
  EXPECT_TRUE(outcome.latents.defined());
  EXPECT_FALSE(outcome.frames.defined());
}

}  // namespace
}  // namespace sparsereel::models
