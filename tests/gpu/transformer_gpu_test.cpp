// Tests each family's transformer on a GPU against diffusers' outputs. Skipped without a GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/request/attention_run.h"
#include "models/store/weights/device.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

class TransformerOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
  }

  static at::Tensor run(const test::ParityCase& one, at::ScalarType dtype, hilbert::TokenOrder order) {
    const auto transformer = load_transformer(test::transformer_component(one), at::kCUDA, dtype);
    AttentionRun how;
    how.token_order = order;
    const test::Golden golden(one.family->folder + "dit_golden");
    const test::TransformerForward given =
        test::transformer_forward(one, golden, at::TensorOptions().device(at::kCUDA).dtype(dtype));
    return transformer->forward(given.latents, given.conditioning, given.timesteps, how).to(at::kCPU, at::kFloat);
  }

  static at::Tensor tensor(const test::ParityCase& one, const std::string& key) {
    return test::Golden(one.family->folder + "dit_golden")[one.name + "/" + key];
  }

  c10::InferenceMode inference_;
  const std::vector<test::ParityCase> cases_ = test::parity_cases("dit_cases.json");
};

TEST_F(TransformerOnGpu, MatchesDiffusersInFp32InEveryTokenOrder) {
  for (const test::ParityCase& one : cases_) {
    for (const auto order : {hilbert::TokenOrder::native, hilbert::TokenOrder::hilbert})
      EXPECT_TRUE(test::close_to(run(one, at::kFloat, order), tensor(one, "output"), 1e-4)) << one.name;
  }
}

TEST_F(TransformerOnGpu, ErrsNoMoreInBfloat16ThanDiffusers) {
  double ours = 0, theirs = 0;  // sums of squared errors, relative to the mean square of each model's output
  for (const test::ParityCase& one : cases_) {
    const at::Tensor exact = tensor(one, "output");
    const double unit = exact.square().mean().item<double>();
    ours += (run(one, at::kBFloat16, hilbert::TokenOrder::hilbert) - exact).square().mean().item<double>() / unit;
    theirs += (tensor(one, "bf16_output").to(at::kFloat) - exact).square().mean().item<double>() / unit;
  }
  EXPECT_LE(std::sqrt(ours), 1.1 * std::sqrt(theirs));
  RecordProperty("error_over_diffusers", std::to_string(std::sqrt(ours / theirs)));
}

}  // namespace
}  // namespace sparsereel::models
