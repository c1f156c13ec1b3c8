// Tests the loop over layers that all transformers share. Uses the toy family (tests/toy), whose latents have another
// layout, whose text has another width than its video, and whose layers have different shapes.
#include "models/transformer/loaded_transformer.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/request/attention_run.h"
#include "tests/support/golden.h"
#include "tests/toy/toy_transformer.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoadedTransformerTest : public ::testing::Test {
 protected:
  static Component random_component() {
    Component component;
    component.random_seed = 5;
    return component;
  }
  at::Tensor forward(const at::Tensor& latents) { return transformer_->forward(latents, {text_}, times_, run_); }

  c10::InferenceMode inference_;
  Component component_ = random_component();
  std::unique_ptr<LoadedTransformer> transformer_ =
      loaded_transformer(std::make_unique<test::ToyTransformer>(), component_, at::kCPU, at::kFloat);
  at::Tensor latents_ = at::randn({2, 4, 2, 4, 3}), text_ = at::zeros({2, 1, 8}), times_ = at::tensor({0.25F, 0.5F});
  AttentionRun run_;
};

TEST_F(LoadedTransformerTest, PredictsTheSameInEveryTokenOrder) {
  run_.token_order = hilbert::TokenOrder::native;
  const at::Tensor native = forward(latents_);
  EXPECT_EQ(native.sizes(), latents_.sizes());
  for (const auto order : {hilbert::TokenOrder::hilbert, hilbert::TokenOrder::time_major, hilbert::TokenOrder::morton,
                           hilbert::TokenOrder::random}) {
    run_.token_order = order;
    EXPECT_TRUE(test::close_to(forward(latents_), native, 1e-5)) << hilbert::name(order);
  }
}

TEST_F(LoadedTransformerTest, PassesFractionalTimestepsToTheBlocks) {
  const at::Tensor once = forward(latents_);
  times_ = times_ + 0.1;
  EXPECT_FALSE(test::close_to(forward(latents_), once, 1e-3));
}

TEST_F(LoadedTransformerTest, IgnoresTextBeyondItsLength) {
  const Conditioning text = {.text = at::randn({2, 4, 8}), .text_lengths = {1, 3}};
  Conditioning padded = text;
  padded.text = text.text.clone();
  padded.text[0].slice(0, 1).fill_(7);
  padded.text[1].slice(0, 3).fill_(-9);
  const auto predict = [&](const Conditioning& conditioning) {
    return transformer_->forward(latents_, conditioning, times_, run_);
  };
  for (const auto mode : {attention::Mode::full, attention::Mode::sparse}) {
    run_.mode = mode;
    EXPECT_TRUE(predict(padded).equal(predict(text)));
    padded.text_lengths = {4, 4};
    EXPECT_FALSE(test::close_to(predict(padded), predict(text), 1e-3));
    padded.text_lengths = text.text_lengths;
    // The first batch entry must be close to the result for its text alone, without padding.
    const at::Tensor alone = transformer_->forward(
        latents_.narrow(0, 0, 1), {text.text.narrow(0, 0, 1).narrow(1, 0, 1)}, times_.narrow(0, 0, 1), run_);
    EXPECT_TRUE(test::close_to(predict(text).narrow(0, 0, 1), alone, 1e-5));
  }
}

TEST_F(LoadedTransformerTest, GivesKnownTokensTheirOwnTimestep) {
  Conditioning known = {text_};
  known.mask = at::ones({1, 1, 2, 1, 1});
  known.latents = at::zeros({1, 4, 2, 4, 3});
  const auto predict = [&](const Conditioning& conditioning) {
    return transformer_->forward(latents_, conditioning, times_, run_);
  };
  EXPECT_TRUE(predict(known).equal(predict({text_}))) << "none is";
  known.mask.zero_();
  const at::Tensor all = predict(known);
  times_.zero_();
  EXPECT_TRUE(all.equal(predict({text_}))) << "all are";
  times_ = at::tensor({0.25F, 0.5F});
  known.mask.select(2, 1).fill_(1);
  for (const auto order : {hilbert::TokenOrder::native, hilbert::TokenOrder::hilbert}) {
    run_.token_order = order;
    const at::Tensor first = predict(known);
    EXPECT_FALSE(test::close_to(first, all, 1e-3));
    EXPECT_FALSE(test::close_to(first, predict({text_}), 1e-3));
    run_.token_order = hilbert::TokenOrder::native;
    EXPECT_TRUE(test::close_to(first, predict(known), 1e-5));
  }
}

TEST_F(LoadedTransformerTest, CountsAndReportsEachLayer) {
  std::vector<int64_t> seen;
  run_.watcher = [&](const AttentionCall& call) { seen.push_back(call.layer * 10 + call.context.text_tokens); };
  run_.mode = attention::Mode::sparse;
  forward(latents_);
  EXPECT_THAT(seen, ElementsAre(1, 11, 21));
  ASSERT_EQ(run_.per_layer.size(), 3U);
  for (const attention::Statistics& layer : run_.per_layer) EXPECT_EQ(layer.calls, 1);
  EXPECT_EQ(run_.statistics.calls, 3);
}

TEST_F(LoadedTransformerTest, RunsNoLayerForInputsThatTheFamilyRefuses) {
  EXPECT_THROW(forward(at::zeros({2, 5, 2, 4, 3})), Error);
  EXPECT_TRUE(run_.per_layer.empty());
}

TEST_F(LoadedTransformerTest, ListsEveryMissingWeight) {
  component_.random_seed.reset();
  try {
    loaded_transformer(std::make_unique<test::ToyTransformer>(), component_, at::kCPU, at::kFloat);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("32 missing: \"embed.weight\" [32, 4]"));
    EXPECT_THAT(error.what(), HasSubstr("\"layer.0.in.weight\" [8, 32]"));
  }
}

}  // namespace
}  // namespace sparsereel::models
