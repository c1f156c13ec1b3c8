// The loop behind every denoiser, run with a family of the test's own: another layout of latents, no text among the
// tokens, layers of differing shapes.
#include "models/dit/denoiser.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/dit/dit.h"
#include "models/dit/patches.h"
#include "models/layers/linear.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr PatchSize kPixel = {.frames = 1, .height = 1, .width = 1};
constexpr int64_t kWidth = 32, kHeads = 2, kLayers = 3;

/// A pixel a token; latents are [B, C, F, H, W]. Each layer attends, then adds a product that goes through a width of
/// its own.
class ToyDit final : public Dit {
 public:
  size_t layers() const override { return kLayers; }
  void weights(const Visit& visit) override {
    embed_.weights(visit, "embed", kWidth, 4);
    head_.weights(visit, "head", 4, kWidth);
  }
  void weights(size_t layer, const Visit& visit) override {
    const std::string name = "layer." + std::to_string(layer);
    const auto inner = static_cast<int64_t>(8 * (layer + 1));
    inner_[layer].weights(visit, name + ".in", inner, kWidth, /*has_bias=*/layer != 1);
    outer_[layer].weights(visit, name + ".out", kWidth, inner);
  }
  hilbert::Grid grid_of(const DitInput& input) const override {
    if (input.latents.size(1) != 4) throw bad_input("latents have another number of channels", "use four");
    return {input.latents.size(2), input.latents.size(3), input.latents.size(4)};
  }
  TokenTables tables(const hilbert::Grid& grid) const override {
    return {.video_positions = sincos_positions_3d(kWidth, grid, 1, 1), .text_positions = {}, .rotary = {}};
  }
  Tokens embed(const DitInput& input, const TokenPlan& plan) const override {
    const at::Tensor pixels = patchify(input.latents.transpose(1, 2), kPixel, plan);
    const at::Tensor video = linear(pixels, embed_) + plan.video_positions;
    return {.hidden = Residual(video, video.size(1)), .text_tokens = 0, .time = input.timesteps.view({-1, 1})};
  }
  void block(size_t layer, Tokens& tokens, Attend& attend) const override {
    const at::Tensor ones = at::ones({tokens.time.size(0), kWidth});
    const JointModulation plain = {.video = {ones * 0, ones * 0, ones}, .text = {}};
    const at::Tensor x = tokens.hidden.norm_modulate({}, 1e-5, plain);
    const at::Tensor heads = x.unflatten(2, {kHeads, -1});
    tokens.hidden.add(attend(heads, heads, heads, {}).flatten(2), plain);
    tokens.hidden.add(linear(linear(x * tokens.time.unsqueeze(2), inner_[layer]), outer_[layer]), plain);
  }
  at::Tensor head(Tokens& tokens, const TokenPlan& plan) const override {
    return unpatchify(linear(tokens.hidden.value(), head_), kPixel, plan).transpose(1, 2);
  }

 private:
  Linear embed_, head_;
  std::vector<Linear> inner_ = std::vector<Linear>(kLayers), outer_ = std::vector<Linear>(kLayers);
};

class Loop : public ::testing::Test {
 protected:
  static Component random_component() {
    Component component;
    component.random_seed = 5;
    return component;
  }
  at::Tensor forward(const at::Tensor& latents) { return denoiser_->forward(latents, text_, times_, run_); }

  c10::InferenceMode inference_;
  Component component_ = random_component();
  std::unique_ptr<Denoiser> denoiser_ = load_denoiser(std::make_unique<ToyDit>(), component_, at::kCPU, at::kFloat);
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
  run_.watcher = [&](const AttentionCall& call) { seen.push_back(call.context.layer * 10 + call.context.text_tokens); };
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
    load_denoiser(std::make_unique<ToyDit>(), component_, at::kCPU, at::kFloat);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("15 missing: \"embed.weight\" [32, 4]"));
    EXPECT_THAT(error.what(), HasSubstr("\"layer.2.in.weight\" [24, 32]"));
  }
}

}  // namespace
}  // namespace sparsereel::models
