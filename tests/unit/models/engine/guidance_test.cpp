// Tests guidance: its arithmetic, the inputs of each forward pass, and that the two passes give the same result one
// after the other as in one batch.
#include "models/engine/guidance.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/engine/pipeline.h"
#include "models/request/outcome.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

class GuidanceTest : public ::testing::Test {
 protected:
  /// Returns a forward pass that adds the mean of each batch entry's text to its latents. It records the batch size.
  Guidance::Denoise denoise() {
    return [this](const at::Tensor& latents, const Conditioning& conditioning) {
      batches_.push_back(latents.size(0));
      const at::Tensor added = conditioning.text.mean({1, 2}).view({-1, 1, 1});
      return Prediction{.video = latents + added, .sound = has_sound_ ? latents * added : at::Tensor()};
    };
  }

  c10::InferenceMode inference_;
  at::Tensor latents_ = at::randn({1, 2, 3});
  Conditioning conditioning_ = {at::stack({at::full({4, 5}, 2.0F), at::full({4, 5}, 3.0F)})};
  bool has_sound_ = false;
  std::vector<int64_t> batches_;
};

TEST_F(GuidanceTest, AddsTheScaledDifferenceToTheNegativePrompt) {
  for (const auto passes : {GuidancePasses::batched, GuidancePasses::in_turn}) {
    const Prediction prediction = Guidance(6, false, 50, passes).predict(latents_, conditioning_, 999, denoise());
    EXPECT_TRUE(test::close_to(prediction.video, latents_ + 2 + 6, 1e-6));
    EXPECT_FALSE(prediction.sound.defined());
  }
  EXPECT_THAT(batches_, ElementsAre(2, 1, 1));
}

TEST_F(GuidanceTest, GuidesTheSoundLikeTheVideo) {
  has_sound_ = true;
  for (const auto passes : {GuidancePasses::batched, GuidancePasses::in_turn}) {
    const Prediction prediction = Guidance(6, false, 50, passes).predict(latents_, conditioning_, 999, denoise());
    EXPECT_TRUE(test::close_to(prediction.video, latents_ + 2 + 6, 1e-6));
    EXPECT_TRUE(test::close_to(prediction.sound, latents_ * (2 + 6), 1e-6));
  }
}

TEST_F(GuidanceTest, RunsOneForwardForASinglePrompt) {
  const Prediction prediction =
      Guidance(6, false, 50, GuidancePasses::batched).predict(latents_, conditioning_.pass(1), 999, denoise());
  EXPECT_TRUE(prediction.video.equal(latents_ + 3));
  EXPECT_THAT(batches_, ElementsAre(1));
}

TEST_F(GuidanceTest, RaisesADynamicScaleFromOneByTheGuidanceScale) {
  const Guidance guidance(6, true, 50, GuidancePasses::batched);
  EXPECT_DOUBLE_EQ(guidance.scale(50), 1);
  EXPECT_DOUBLE_EQ(guidance.scale(0), 7);
  EXPECT_LT(guidance.scale(20), guidance.scale(10));
  EXPECT_DOUBLE_EQ(Guidance(6, false, 50, GuidancePasses::batched).scale(20), 6);
}

TEST(Guidance, MakesTheSameVideoWithPassesInTurn) {
  const auto pipeline = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32");
  Request request;
  request.prompt = "a red circle";
  request.num_inference_steps = 2;
  request.attention_mode = attention::Mode::full;
  const Outcome batched = pipeline->generate(request, {.decode = false});
  request.guidance_passes = GuidancePasses::in_turn;
  const Outcome in_turn = pipeline->generate(request, {.decode = false});
  EXPECT_TRUE(test::close_to(in_turn.latents.video, batched.latents.video, 1e-5));
  for (const attention::Statistics& layer : in_turn.attention.per_layer) EXPECT_EQ(layer.calls, 4);
  for (const attention::Statistics& layer : batched.attention.per_layer) EXPECT_EQ(layer.calls, 2);
}

}  // namespace
}  // namespace sparsereel::models
