// Compares our samplers, and the noise that torch draws, with diffusers' schedulers. The data come from
// make_schedulers.py, make_flow_schedulers.py and make_ancestral_schedulers.py.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "models/families/cogvideox/family.h"
#include "models/request/sampling.h"
#include "models/samplers/flow_config.h"
#include "models/samplers/make_sampler.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;
using test::Golden;

constexpr uint64_t kSeed = 11;

/// Returns the runs of a golden file, each with that file's name.
std::vector<nlohmann::json> cases(const std::string& golden) {
  std::ifstream file(std::string(SPARSEREEL_TEST_DATA) + "/" + golden.substr(0, golden.rfind('_')) + "_cases.json");
  auto cases = nlohmann::json::parse(file).get<std::vector<nlohmann::json>>();
  for (nlohmann::json& each : cases) each["golden"] = golden;
  return cases;
}

at::ScalarType dtype_of(const std::string& name) {
  if (name == "torch.bfloat16") return at::kBFloat16;
  return name == "torch.float16" ? at::kHalf : at::kFloat;
}

std::vector<double> to_vector(const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.to(at::kDouble);
  return {numbers.data_ptr<double>(), numbers.data_ptr<double>() + numbers.numel()};
}

/// Returns the sum of timesteps with weights 1, 2, 3 and so on.
double weighted_sum(const std::vector<double>& timesteps) {
  double sum = 0;
  for (size_t i = 0; i < timesteps.size(); ++i) sum += timesteps[i] * static_cast<double>(i + 1);
  return sum;
}

/// Parses a config as its `_class_name` requires.
SchedulerConfig parse(const nlohmann::json& json) {
  static const std::vector<SamplerSpec> samplers = all_samplers();
  const SamplerSpec& spec = find_sampler(samplers, json.at("_class_name").get<std::string>());
  SchedulerConfig config = spec.parse(json, "scheduler_config.json");
  config.kind = spec.kind;
  return config;
}

class SchedulersParity : public ::testing::TestWithParam<nlohmann::json> {
 protected:
  at::Tensor golden(const std::string& key) const { return golden_[GetParam()["name"].get<std::string>() + "." + key]; }
  at::ScalarType dtype() const { return dtype_of(GetParam()["dtype"]); }
  at::ScalarType prediction_dtype() const { return dtype_of(GetParam().value("prediction_dtype", "torch.float32")); }
  std::unique_ptr<Sampler> scheduler() const {
    SchedulerConfig config = parse(GetParam()["config"]);
    config.sigmas = GetParam().value("sigmas", std::vector<double>());
    return make_sampler(config, GetParam()["steps"]);
  }
  bool is_flow() const { return GetParam()["golden"] == "flow_schedulers_golden"; }
  /// Returns the prediction of the invented model that the scripts use, too.
  at::Tensor predict(const at::Tensor& latents, int64_t index) const {
    return (latents.to(at::kFloat) * 0.25 + direction_[index % direction_.size(0)]).to(prediction_dtype());
  }

  c10::InferenceMode inference_;
  Golden golden_{GetParam()["golden"].get<std::string>()};
  at::Tensor direction_ = golden_["direction"];
};

TEST_P(SchedulersParity, MatchesDiffusersOverAWholeRun) {
  const auto sampler = scheduler();
  EXPECT_EQ(sampler->timesteps(), to_vector(golden("timesteps")));

  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  at::Tensor latents = at::randn(direction_[0].sizes(), generator, at::TensorOptions().dtype(dtype()));
  EXPECT_TRUE(latents.to(at::kFloat).equal(golden_["start." + GetParam()["dtype"].get<std::string>()]));

  latents = sampler->start(latents);
  const at::Tensor expected = golden("latents");
  // In 16 bits a last bit may be rounded the other way, and later steps keep the difference.
  const at::ScalarType coarsest = dtype() == at::kFloat ? prediction_dtype() : dtype();
  const double tolerance = coarsest == at::kFloat ? 1e-6 : coarsest == at::kHalf ? 2e-3 : 1e-2;
  for (int64_t i = 0; i < static_cast<int64_t>(sampler->timesteps().size()); ++i) {
    latents = sampler->step(predict(sampler->model_input(latents, i), i), i, latents, generator).to(dtype());
    ASSERT_TRUE(close_to(latents, expected[i], tolerance)) << "after step " << i;
  }
  const at::Tensor next_draw = at::randn({4}, generator, at::TensorOptions().dtype(at::kFloat));
  EXPECT_TRUE(next_draw.equal(golden("next_draw"))) << "the run drew more or less noise than the reference";
}

TEST_P(SchedulersParity, ResumesToTheSameResult) {
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

std::string name_of(const ::testing::TestParamInfo<nlohmann::json>& test) {
  return test.param["name"];
}

INSTANTIATE_TEST_SUITE_P(Cases, SchedulersParity, ::testing::ValuesIn(cases("schedulers_golden")), name_of);
INSTANTIATE_TEST_SUITE_P(AncestralCases, SchedulersParity, ::testing::ValuesIn(cases("ancestral_schedulers_golden")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(FlowCases, SchedulersParity, ::testing::ValuesIn(cases("flow_schedulers_golden")), name_of);

TEST(SchedulersTimesteps, MatchDiffusersForEveryNumberOfSteps) {
  const at::Tensor sums = Golden("schedulers_golden")["timestep_sums"];  // [spacing, steps - 1, (count, weighted sum)]
  const std::vector<std::string> spacings = {"linspace", "leading", "trailing"};
  int64_t with_wrapped_step = 0;
  for (int64_t spacing = 0; spacing < 3; ++spacing) {
    for (int64_t steps = 1; steps <= 1000; ++steps) {
      SchedulerConfig config;
      config.timestep_spacing = spacings[spacing];
      const std::vector<double> timesteps = make_sampler(config, steps)->timesteps();
      double sum = weighted_sum(timesteps);
      // For some numbers of steps, numpy's rounding gives diffusers one more timestep, -1.
      const int64_t expected_count = sums[spacing][steps - 1][0].item<int64_t>();
      if (expected_count == steps + 1) sum -= static_cast<double>(expected_count), ++with_wrapped_step;
      ASSERT_EQ(static_cast<int64_t>(timesteps.size()), steps);
      ASSERT_EQ(sum, sums[spacing][steps - 1][1].item<double>()) << spacings[spacing] << ", " << steps << " steps";
    }
  }
  EXPECT_GT(with_wrapped_step, 0);
}

TEST(SchedulersTimesteps, MatchDiffusersForManyNumbersOfStepsOfFlowMatching) {
  const Golden golden("flow_schedulers_golden");
  const at::Tensor sums = golden["timestep_sums"];  // [class, shift, place in counts], weighted sums x 2^24
  const std::vector<double> counts = to_vector(golden["counts"]), shifts = to_vector(golden["shifts"]);
  const std::vector<SamplerKind> kinds = {SamplerKind::unipc, SamplerKind::flow_euler, SamplerKind::flow_dpm_solver,
                                          SamplerKind::flow_lcm};
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (size_t row = 0; row < shifts.size(); ++row) {
      for (size_t column = 0; column < counts.size(); ++column) {
        SchedulerConfig config;
        config.kind = kinds[kind];
        config.flow_shift = shifts[row];
        const auto timesteps = make_sampler(config, static_cast<int64_t>(counts[column]))->timesteps();
        ASSERT_EQ(static_cast<double>(timesteps.size()), counts[column]);
        ASSERT_EQ(std::ldexp(weighted_sum(timesteps), 24), sums[kind][row][column].item<double>())
            << "kind " << kind << ", shift " << shifts[row] << ", " << counts[column] << " steps";
      }
    }
  }
}

TEST(TorchNoise, MatchesPythonForTheSameSeed) {
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
