// The loop behind every denoiser, run with the tests' own family: another layout of latents, no text among the tokens,
// layers of differing shapes.
#include "models/dit/denoiser.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "tests/support/golden.h"
#include "tests/toy/toy_dit.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Loop : public ::testing::Test {
 protected:
  static Component random_component() {
    Component component;
    component.random_seed = 5;
    return component;
  }
  at::Tensor forward(const at::Tensor& latents) { return denoiser_->forward(latents, {text_}, times_, run_); }

  c10::InferenceMode inference_;
  Component component_ = random_component();
  std::unique_ptr<Denoiser> denoiser_ =
      load_denoiser(std::make_unique<test::ToyDit>(), component_, at::kCPU, at::kFloat);
  at::Tensor latents_ = at::randn({2, 4, 2, 4, 3}), text_ = at::zeros({2, 1, 8}), times_ = at::tensor({0.25F, 0.5F});
  AttentionRun run_;
};

TEST_F(Loop, EveryTokenOrderPredictsTheSame) {
  run_.token_order = hilbert::TokenOrder::native;
  const at::Tensor native = forward(latents_);
  EXPECT_EQ(native.sizes(), latents_.sizes());
  for (const auto order : {hilbert::TokenOrder::hilbert, hilbert::TokenOrder::random}) {
    run_.token_order = order;
    EXPECT_TRUE(test::close_to(forward(latents_), native, 1e-5)) << hilbert::name(order);
  }
}

TEST_F(Loop, FractionalTimestepsReachTheBlocks) {
  const at::Tensor once = forward(latents_);
  times_ = times_ + 0.1;
  EXPECT_FALSE(test::close_to(forward(latents_), once, 1e-3));
}

TEST_F(Loop, CountsAndShowsEachLayer) {
  std::vector<int64_t> seen;
  run_.watcher = [&](const AttentionCall& call) { seen.push_back(call.layer * 10 + call.context.text_tokens); };
  run_.mode = attention::Mode::sparse;
  forward(latents_);
  EXPECT_THAT(seen, ElementsAre(0, 10, 20));
  ASSERT_EQ(run_.per_layer.size(), 3U);
  for (const attention::Statistics& layer : run_.per_layer) EXPECT_EQ(layer.calls, 1);
  EXPECT_EQ(run_.statistics.calls, 3);
}

TEST_F(Loop, WhatTheFamilyRefusesRunsNothing) {
  EXPECT_THROW(forward(at::zeros({2, 5, 2, 4, 3})), Error);
  EXPECT_TRUE(run_.per_layer.empty());
}

TEST_F(Loop, ListsEveryWeightThatIsMissing) {
  component_.random_seed.reset();
  try {
    load_denoiser(std::make_unique<test::ToyDit>(), component_, at::kCPU, at::kFloat);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("21 missing: \"embed.weight\" [32, 4]"));
    EXPECT_THAT(error.what(), HasSubstr("\"layer.2.in.weight\" [24, 32]"));
  }
}

}  // namespace
}  // namespace sparsereel::models
