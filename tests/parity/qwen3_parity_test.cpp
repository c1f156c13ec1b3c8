// Compares the hidden states of Qwen3's language model with transformers. The data come from make_qwen3.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/text/encoder/qwen3_encoder.h"
#include "tests/support/golden.h"
#include "tests/support/qwen3_component.h"

namespace sparsereel::models {
namespace {

using test::close_to;

class Qwen3Parity : public ::testing::Test {
 protected:
  static Qwen3Encoder load(WeightFormat format, Residence residence = Residence::device, int64_t layers = 3) {
    static const Component component = test::small_qwen3();
    return Qwen3Encoder::load(component, at::kCPU, format, residence, layers);
  }

  c10::InferenceMode inference_;
  test::Golden golden_{"qwen3_golden"};
};

TEST_F(Qwen3Parity, MatchesTheStatesAfterALayerInFp32) {
  for (const Residence residence : {Residence::device, Residence::file})
    EXPECT_TRUE(close_to(load(at::kFloat, residence).forward(golden_["ids"]), golden_["fp32.hidden"], 2e-6));
  EXPECT_FALSE(close_to(load(at::kFloat, Residence::device, 2).forward(golden_["ids"]), golden_["fp32.hidden"], 1e-2));
  EXPECT_FALSE(close_to(load(at::kFloat, Residence::device, 4).forward(golden_["ids"]), golden_["fp32.hidden"], 1e-2));
}

TEST_F(Qwen3Parity, MatchesTheStatesOfLongPrompts) {
  const at::Tensor hidden = load(at::kFloat).forward(golden_["long_ids"]);
  EXPECT_TRUE(close_to(hidden.slice(1, 0, hidden.size(1), 7), golden_["fp32.long_hidden"], 2e-6));
}

TEST_F(Qwen3Parity, MatchesTheStatesInBf16) {
  const at::Tensor hidden = load(at::kBFloat16).forward(golden_["ids"]);
  EXPECT_EQ(hidden.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(close_to(hidden, golden_["bf16.hidden"], 1.5e-2));
  EXPECT_FALSE(close_to(hidden, golden_["fp32.hidden"], 1e-4));
}

/// The bound for fp8 is that of T5Parity. int8 with a scale per row errs a third as much.
TEST_F(Qwen3Parity, ErrsLittleWithEightBitWeights) {
  for (const auto& [products, most] : {std::pair(Products::fp8, 0.12), std::pair(Products::int8, 0.04)}) {
    const at::Tensor hidden = load({at::kFloat, products}).forward(golden_["ids"]), exact = golden_["fp32.hidden"];
    const double error = ((hidden - exact).abs().sum() / exact.abs().sum()).item<double>();
    EXPECT_GT(error, 1e-4);
    EXPECT_LT(error, most);
  }
}

}  // namespace
}  // namespace sparsereel::models
