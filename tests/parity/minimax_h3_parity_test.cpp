// Compares MiniMax-H3's transformer with diffusers on small random models. The data come from make_minimax_h3_dit.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "models/families/minimax_h3/loaders.h"
#include "models/request/attention_run.h"
#include "tests/support/minimax_h3_cases.h"

namespace sparsereel::models {
namespace {

using test::close_to;

class MiniMaxH3Parity : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  std::unique_ptr<LoadedTransformer> load(WeightFormat format) const {
    return load_minimax_h3_transformer(component_, at::kCPU, format);
  }
  at::Tensor tensor(const std::string& name) const { return golden_[GetParam().name + "/" + name]; }
  double time(size_t stream) const { return GetParam().content["times"][stream].get<double>(); }

  TransformerInput input(at::ScalarType dtype = at::kFloat) const {
    return test::minimax_h3_input(GetParam(), golden_, dtype);
  }
  Prediction predict(LoadedTransformer& transformer, hilbert::TokenOrder order, attention::Mode mode,
                     at::ScalarType dtype = at::kFloat) {
    run_.mode = mode;
    run_.token_order = order;
    run_.policy.defaults.topk = 1.0;
    run_.policy.defaults.pv_threshold = 50;  // never skips
    return transformer.predict(input(dtype), run_);
  }
  void expect_close(const Prediction& actual, const std::string& kind, double tolerance) const {
    EXPECT_TRUE(close_to(actual.video, tensor(kind + "output"), tolerance));
    EXPECT_TRUE(close_to(actual.sound, tensor(kind + "sound_output"), tolerance));
  }

  c10::InferenceMode inference_;
  test::Golden golden_{"minimax_h3/dit_golden"};
  Component component_ = test::transformer_component(GetParam());
  AttentionRun run_;
};

TEST_P(MiniMaxH3Parity, MatchesDiffusersInEveryTokenOrder) {
  const auto transformer = load(at::kFloat);
  for (const auto order : {hilbert::TokenOrder::native, hilbert::TokenOrder::hilbert, hilbert::TokenOrder::random}) {
    SCOPED_TRACE(hilbert::name(order));
    expect_close(predict(*transformer, order, attention::Mode::full), "", 1e-5);
  }
}

TEST_P(MiniMaxH3Parity, MatchesDiffusersIfSparseAttentionKeepsEveryBlock) {
  const auto transformer = load(at::kFloat);
  expect_close(predict(*transformer, hilbert::TokenOrder::hilbert, attention::Mode::sparse), "", 1e-5);
  EXPECT_EQ(run_.statistics.kept_blocks, run_.statistics.total_blocks);
}

// On these models diffusers' bf16 differs from its fp32 by at most 7.2e-3 of the scale. The bound is twice that.
TEST_P(MiniMaxH3Parity, MatchesDiffusersInBfloat16) {
  const auto transformer = load(at::kBFloat16);
  const Prediction prediction =
      predict(*transformer, hilbert::TokenOrder::hilbert, attention::Mode::full, at::kBFloat16);
  EXPECT_EQ(prediction.video.scalar_type(), at::kFloat) << "predictions have the dtype of the latents";
  expect_close(prediction, "bf16_", 1.5e-2);
  expect_close(prediction, "", 1.5e-2);
}

// If the last bit of a sum moves activations to the next 8-bit number, the output changes. torch's own output changes
// by up to 4.0e-3 if its inputs change by 1e-6 (case both). A weight or an input that is not in 8 bits changes it by
// 7e-3.
TEST_P(MiniMaxH3Parity, MatchesTheEightBitWeightsOfTorch) {
  const auto reduced = load({at::kFloat, /*in_fp8=*/true});
  const Prediction prediction = predict(*reduced, hilbert::TokenOrder::native, attention::Mode::full);
  const auto relative_l1 = [&](const at::Tensor& output, const char* key) {
    const at::Tensor expected = tensor(key).to(at::kFloat);
    return ((output - expected).abs().sum() / expected.abs().sum()).item<double>();
  };
  EXPECT_LT(relative_l1(prediction.video, "fp8_output"), 5e-3);
  EXPECT_LT(relative_l1(prediction.sound, "fp8_sound_output"), 5e-3);
  EXPECT_EQ(load(at::kFloat)->weight_bytes() - reduced->weight_bytes(),
            GetParam().content["fp8_saves"].get<uint64_t>());
}

TEST_P(MiniMaxH3Parity, GivesTheSamePredictionWithTheModulationOfAllStepsMadeBefore) {
  const auto transformer = load(at::kFloat);
  const Prediction alone = predict(*transformer, hilbert::TokenOrder::hilbert, attention::Mode::full);
  const TransformerInput given = input();
  transformer->prepare(
      {.video = {0.05, time(0), 0.9}, .sound = {0.1, time(1), 0.8}, .has_keyframes = !given.keyframes.empty()});
  component_.files.clear();  // nothing is read after prepare()
  const Prediction prepared = predict(*transformer, hilbert::TokenOrder::hilbert, attention::Mode::full);
  EXPECT_TRUE(close_to(prepared.video, alone.video, 1e-6));
  EXPECT_TRUE(close_to(prepared.sound, alone.sound, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Cases, MiniMaxH3Parity, ::testing::ValuesIn(test::minimax_h3_cases()), test::case_name);

}  // namespace
}  // namespace sparsereel::models
