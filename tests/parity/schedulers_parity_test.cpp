// CogVideoX's samplers and torch's noise against diffusers; data from make_samplers.py.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/samplers/sampler.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;
using test::Golden;

constexpr uint64_t kSeed = 11;

std::vector<nlohmann::json> cases() {
  std::ifstream file(std::string(SPARSEREEL_TEST_DATA) + "/schedulers_cases.json");
  return nlohmann::json::parse(file).get<std::vector<nlohmann::json>>();
}

at::ScalarType dtype_of(const std::string& name) {
  if (name == "torch.bfloat16") return at::kBFloat16;
  return name == "torch.float16" ? at::kHalf : at::kFloat;
}

std::vector<double> to_vector(const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.to(at::kDouble);
  return {numbers.data_ptr<double>(), numbers.data_ptr<double>() + numbers.numel()};
}

class SchedulersParity : public ::testing::TestWithParam<nlohmann::json> {
 protected:
  at::Tensor golden(const std::string& key) const { return golden_[GetParam()["name"].get<std::string>() + "." + key]; }
  at::ScalarType dtype() const { return dtype_of(GetParam()["dtype"]); }
  std::unique_ptr<Sampler> scheduler() const {
    return make_sampler(parse_scheduler_config(GetParam()["config"], "scheduler_config.json"), GetParam()["steps"]);
  }
  /// What the made-up model predicts, as in make_samplers.py.
  at::Tensor predict(const at::Tensor& latents, int64_t index) const {
    return latents.to(at::kFloat) * 0.25 + direction_[index % direction_.size(0)];
  }

  c10::InferenceMode inference_;
  Golden golden_{"schedulers_golden"};
  at::Tensor direction_ = golden_["direction"];
};

TEST_P(SchedulersParity, WholeRunMatchesDiffusers) {
  const auto sampler = scheduler();
  EXPECT_EQ(sampler->timesteps(), to_vector(golden("timesteps")));

  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  at::Tensor latents = at::randn(direction_[0].sizes(), generator, at::TensorOptions().dtype(dtype()));
  EXPECT_TRUE(latents.to(at::kFloat).equal(golden_["start." + GetParam()["dtype"].get<std::string>()]));

  const at::Tensor expected = golden("latents");
  // In 16 bits, a rounding of the last place may go the other way once and is then carried along.
  const double tolerance = dtype() == at::kFloat ? 1e-6 : dtype() == at::kHalf ? 2e-3 : 1e-2;
  for (int64_t i = 0; i < static_cast<int64_t>(sampler->timesteps().size()); ++i) {
    latents = sampler->step(predict(latents, i), i, latents, generator).to(dtype());
    ASSERT_TRUE(close_to(latents, expected[i], tolerance)) << "after step " << i;
  }
  const at::Tensor next_draw = at::randn({4}, generator, at::TensorOptions().dtype(at::kFloat));
  EXPECT_TRUE(next_draw.equal(golden("next_draw"))) << "the run drew more or less noise than the reference";
}

TEST_P(SchedulersParity, ResumedRunIsTheSame) {
  const auto whole = scheduler();
  const auto steps = static_cast<int64_t>(whole->timesteps().size());
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  at::Tensor latents = golden_["start." + GetParam()["dtype"].get<std::string>()].to(dtype());
  const auto advance = [&](Sampler& sampler, int64_t from, int64_t to, at::Tensor sample, at::Generator noise) {
    for (int64_t i = from; i < to; ++i) sample = sampler.step(predict(sample, i), i, sample, noise).to(dtype());
    return sample;
  };
  latents = advance(*whole, 0, steps / 2, latents, generator);
  const auto state = whole->state();
  at::Generator resumed_generator = generator.clone();
  const at::Tensor expected = advance(*whole, steps / 2, steps, latents, generator);

  const auto resumed = scheduler();
  resumed->restore(state);
  EXPECT_TRUE(advance(*resumed, steps / 2, steps, latents, resumed_generator).equal(expected));
}

INSTANTIATE_TEST_SUITE_P(Cases, SchedulersParity, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param["name"].template get<std::string>(); });

TEST(SchedulersTimesteps, MatchDiffusersForEveryNumberOfSteps) {
  const at::Tensor sums = Golden("schedulers_golden")["timestep_sums"];  // [spacing, steps - 1, (count, weighted sum)]
  const std::vector<std::string> spacings = {"linspace", "leading", "trailing"};
  int64_t with_wrapped_step = 0;
  for (int64_t spacing = 0; spacing < 3; ++spacing) {
    for (int64_t steps = 1; steps <= 1000; ++steps) {
      SchedulerConfig config;
      config.class_name = "CogVideoXDDIMScheduler";
      config.timestep_spacing = spacings[spacing];
      const std::vector<double> timesteps = make_sampler(config, steps)->timesteps();
      double sum = 0;
      for (size_t i = 0; i < timesteps.size(); ++i) sum += timesteps[i] * static_cast<double>(i + 1);
      // Where numpy gives the reference one timestep too many, it is -1.
      const int64_t expected_count = sums[spacing][steps - 1][0].item<int64_t>();
      if (expected_count == steps + 1) sum -= static_cast<double>(expected_count), ++with_wrapped_step;
      ASSERT_EQ(static_cast<int64_t>(timesteps.size()), steps);
      ASSERT_EQ(sum, sums[spacing][steps - 1][1].item<double>()) << spacings[spacing] << ", " << steps << " steps";
    }
  }
  EXPECT_GT(with_wrapped_step, 0);
}

TEST(TorchNoise, DrawsOfOneSeedMatchPython) {
  const Golden golden("schedulers_golden");
  for (const std::string dtype : {"torch.float32", "torch.bfloat16", "torch.float16"}) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1234);
    for (const int64_t count : {7, 1000}) {
      const at::Tensor noise = at::randn({count}, generator, at::TensorOptions().dtype(dtype_of(dtype)));
      EXPECT_TRUE(noise.to(at::kFloat).equal(golden["noise." + dtype + "." + std::to_string(count)]))
          << dtype << " " << count;
    }
  }
}

}  // namespace
}  // namespace sparsereel::models
