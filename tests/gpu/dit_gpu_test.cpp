// CogVideoX's transformer on a GPU against diffusers' outputs; skips itself, visibly, where there is no GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>

#include "models/device.h"
#include "models/dit/cogvideox.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

class DitOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    std::ifstream file(std::string(SPARSEREEL_TEST_DATA) + "/dit_cases.json");
    cases_ = nlohmann::json::parse(file);
  }

  Component component(const std::string& name) const {
    static const auto file =
        std::make_shared<SafetensorsFile>(std::string(SPARSEREEL_TEST_DATA) + "/dit_golden.safetensors");
    Component component{.class_name = "CogVideoXTransformer3DModel",
                        .folder = "golden",
                        .config = cases_[name]["config"],
                        .config_file = "golden/config.json",
                        .files = {file},
                        .tensors = {}};
    for (const auto& [weight, key] : cases_[name]["weights"].items())
      component.tensors[weight] = {0, file->find(key.get<std::string>())};
    return component;
  }

  at::Tensor run(const std::string& name, at::ScalarType dtype, hilbert::TokenOrder order) const {
    const auto dit = load_cogvideox_dit(component(name), at::kCUDA, dtype);
    AttentionRun how;
    how.token_order = order;
    return dit
        ->forward(tensor(name, "latents").to(at::kCUDA, dtype), tensor(name, "text").to(at::kCUDA, dtype),
                  tensor(name, "timesteps").to(at::kCUDA), how)
        .to(at::kCPU, at::kFloat);
  }

  at::Tensor tensor(const std::string& name, const std::string& key) const { return golden_[name + "/" + key]; }

  c10::InferenceMode inference_;
  nlohmann::json cases_;
  test::Golden golden_{"dit_golden"};
};

TEST_F(DitOnGpu, Fp32MatchesDiffusersInEveryTokenOrder) {
  for (const auto& [name, unused] : cases_.items()) {
    for (const auto order : {hilbert::TokenOrder::native, hilbert::TokenOrder::hilbert})
      EXPECT_TRUE(test::close_to(run(name, at::kFloat, order), tensor(name, "output"), 1e-4)) << name;
  }
}

TEST_F(DitOnGpu, Bfloat16ErrsNoMoreThanThatOfDiffusers) {
  double ours = 0, theirs = 0;  // sums of squares, each model's in units of its output
  for (const auto& [name, unused] : cases_.items()) {
    const at::Tensor exact = tensor(name, "output");
    const double unit = exact.square().mean().item<double>();
    ours += (run(name, at::kBFloat16, hilbert::TokenOrder::hilbert) - exact).square().mean().item<double>() / unit;
    theirs += (tensor(name, "bf16_output").to(at::kFloat) - exact).square().mean().item<double>() / unit;
  }
  EXPECT_LE(std::sqrt(ours), 1.1 * std::sqrt(theirs));
  RecordProperty("error_over_diffusers", std::to_string(std::sqrt(ours / theirs)));
}

}  // namespace
}  // namespace sparsereel::models
