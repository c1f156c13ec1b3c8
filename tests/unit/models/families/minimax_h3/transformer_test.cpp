// Tests MiniMax-H3's transformer: the inputs that it refuses, the padding of a text, the place of a keyframe, and the
// memory of its weights.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "hilbert/error.h"
#include "models/families/minimax_h3/loaders.h"
#include "models/request/attention_run.h"
#include "tests/support/minimax_h3_cases.h"

namespace sparsereel::models {
namespace {

using ::testing::HasSubstr;

class MiniMaxH3Test : public ::testing::Test {
 protected:
  static Component component() {
    return test::transformer_component(
        {&test::minimax_h3(), "text", test::read_data("minimax_h3/dit_cases.json").at("text")});
  }
  static TransformerInput input() {
    return {.latents = at::randn({1, 3, 2, 4, 6}),
            .conditioning = {.text = at::randn({1, 5, 20})},
            .timesteps = at::full({1}, 0.25),
            .sound = at::randn({1, 6, 5}),
            .sound_timesteps = at::full({1}, 0.5)};
  }
  std::string complaint(const std::function<void(TransformerInput&)>& change) {
    TransformerInput changed = input();
    change(changed);
    try {
      transformer_->predict(changed, run_);
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    return "";
  }

  c10::InferenceMode inference_;
  const Component component_ = component();
  std::unique_ptr<LoadedTransformer> transformer_ = load_minimax_h3_transformer(component_, at::kCPU, at::kFloat);
  AttentionRun run_;
};

TEST_F(MiniMaxH3Test, RefusesInputsThatDoNotFit) {
  EXPECT_EQ(complaint([](TransformerInput&) {}), "");
  EXPECT_THAT(complaint([](TransformerInput& x) { x.latents = at::randn({1, 4, 2, 4, 6}); }), HasSubstr("3 channels"));
  EXPECT_THAT(complaint([](TransformerInput& x) { x.latents = at::randn({1, 3, 2, 5, 6}); }), HasSubstr("1 x 2 x 2"));
  EXPECT_THAT(complaint([](TransformerInput& x) {
                x.conditioning.text = at::randn({1, 5, 21});
              }),
              HasSubstr("text_dim 20"));
  EXPECT_THAT(complaint([](TransformerInput& x) { x.sound.reset(); }), HasSubstr("sound of shape"));
  EXPECT_THAT(complaint([](TransformerInput& x) { x.sound = at::randn({1, 7, 5}); }), HasSubstr("[1, 2 x length, 5]"));
  EXPECT_THAT(complaint([](TransformerInput& x) { x.sound_timesteps.reset(); }), HasSubstr("one timestep"));
  EXPECT_THAT(complaint([](TransformerInput& x) {
                x.keyframes = {{at::randn({1, 3, 1, 4, 4})}};
              }),
              HasSubstr("of a keyframe"));
  EXPECT_THAT(complaint([](TransformerInput& x) { x.conditioning.pictures = {{.first = 3, .count = 3}}; }),
              HasSubstr("tokens 3 to 5 stand for a picture, but the text has 5 tokens"));
  EXPECT_THAT(complaint([](TransformerInput& x) {
                x.latents = x.latents.expand({2, -1, -1, -1, -1});
                x.conditioning.text = x.conditioning.text.expand({2, -1, -1});
                x.timesteps = x.timesteps.expand({2});
              }),
              HasSubstr("one video at a time"));
}

TEST_F(MiniMaxH3Test, IgnoresTextBeyondItsLength) {
  TransformerInput whole = input(), padded = whole;
  at::Tensor& text = padded.conditioning.text;
  text = at::constant_pad_nd(text, {0, 0, 0, 3}, 7);
  padded.conditioning.text_lengths = {5};
  EXPECT_TRUE(transformer_->predict(padded, run_).video.equal(transformer_->predict(whole, run_).video));
}

TEST_F(MiniMaxH3Test, TellsInputsWithOtherPositionsApart) {
  TransformerInput first = input();
  first.keyframes = {{.latents = at::randn({1, 3, 1, 4, 6})}};
  TransformerInput last = first;
  last.keyframes.front().last = true;
  const at::Tensor once = transformer_->predict(first, run_).video;
  EXPECT_GT((transformer_->predict(last, run_).video - once).abs().max().item<double>(), 1e-3);
  EXPECT_TRUE(transformer_->predict(first, run_).video.equal(once));
}

TEST_F(MiniMaxH3Test, HoldsNoWeightsThatOnlyModulationNeeds) {
  uint64_t all = 0, modulation = 0;
  for (const auto& [name, place] : component_.tensors) {
    const uint64_t bytes = 4 * static_cast<uint64_t>(c10::multiply_integers(place.second->shape));
    all += bytes;
    if (name.find(".adaln_proj.") != std::string::npos) modulation += bytes;
  }
  EXPECT_GT(modulation, 0U);
  EXPECT_EQ(transformer_->weight_bytes(), all - modulation);
}

}  // namespace
}  // namespace sparsereel::models
