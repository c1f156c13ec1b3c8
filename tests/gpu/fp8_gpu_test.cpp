// Tests 8-bit rows and their products on a GPU against the CPU's emulation. Skipped if no GPU multiplies in 8 bits.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/request/attention_run.h"
#include "models/store/weights/device.h"
#include "models/store/weights/layer_weights.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

constexpr RowFormat kE4m3 = {.kind = RowFormat::e4m3};

class Fp8OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    reason = why_no_fp8(at::Device(at::kCUDA, 0));
    if (!reason.empty()) GTEST_SKIP() << reason;
    at::manual_seed(3);
  }

  static void expect_same_bits(const Activation& gpu, const Activation& cpu) {
    EXPECT_TRUE(gpu.scale.cpu().equal(cpu.scale));
    EXPECT_TRUE(gpu.values.view(at::kByte).cpu().equal(cpu.values.view(at::kByte)));
    EXPECT_EQ(gpu.dtype, cpu.dtype);
  }

  /// Returns a layer on the GPU. The rows of its weight differ in size.
  static Linear layer(int64_t out, int64_t in) {
    const at::Tensor sizes = at::linspace(-3, 3, out).exp2().unsqueeze(1) / std::sqrt(static_cast<double>(in));
    const Activation rows = quantize_rows((at::randn({out, in}) * sizes).to(at::kCUDA, at::kBFloat16));
    return {rows.values, at::randn({out}).to(at::kCUDA, at::kBFloat16), rows.scale.view({-1})};
  }

  static Linear on_cpu(const Linear& gpu) { return {gpu.weight.cpu(), gpu.bias.cpu().to(at::kFloat), gpu.scale.cpu()}; }

  static double relative_l1(const at::Tensor& y, const at::Tensor& exact) {
    return ((y.cpu().to(at::kDouble) - exact).abs().sum() / exact.abs().sum()).item<double>();
  }

  c10::InferenceMode inference_;
};

TEST_F(Fp8OnGpu, QuantizesRowsToTheSameBitsAsTheCpu) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {1, 3, 8, 77, 1001}) {
      for (const int64_t channels : {8, 16, 48, 1024, 1032, 1920, 2048, 2064, 3072, 5120, 8960, 12288, 13824, 16384}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << channels << " " << dtype);
        at::Tensor x = at::randn({rows, channels}) * at::linspace(-12, 9, rows).exp2().unsqueeze(1);
        x[rows / 2].zero_();
        x[rows - 1][channels - 1] = 300;  // the last thread has the row's largest value
        x = x.to(dtype);
        expect_same_bits(quantize_rows(x.to(at::kCUDA)), quantize_rows(x));
      }
    }
  }
}

TEST_F(Fp8OnGpu, QuantizesTheSmallestRowsWithoutNan) {
  at::Tensor x = at::full({4, 64}, 1e-38).to(at::kBFloat16);
  x[1] = 1e-31;
  x[2] = 3e38;
  x[3] = -std::numeric_limits<float>::denorm_min();
  expect_same_bits(quantize_rows(x.to(at::kCUDA)), quantize_rows(x));
  EXPECT_TRUE(at::isfinite(quantize_rows(x).values.to(at::kFloat)).all().item<bool>());
}

TEST_F(Fp8OnGpu, KeepsNanInItsRow) {
  at::Tensor x = at::randn({9, 256}, at::kBFloat16);
  x[4][17] = std::numeric_limits<float>::quiet_NaN();
  const Activation rows = quantize_rows(x.to(at::kCUDA));
  const at::Tensor finite = at::isfinite(linear(rows, layer(32, 256))).all(1).cpu();
  EXPECT_EQ(finite.sum().item<int64_t>(), 8);
  EXPECT_FALSE(finite[4].item<bool>());
}

TEST_F(Fp8OnGpu, AcceptsPartsOfALongerTensor) {
  const at::Tensor x = at::randn({5, 40, 96}, at::kBFloat16);
  for (const at::Tensor& part : {x.narrow(1, 3, 20), x.narrow(2, 4, 64), x.transpose(0, 1)})
    expect_same_bits(quantize_rows(part.to(at::kCUDA)), quantize_rows(part.contiguous()));
  const at::Tensor gpu = x.to(at::kCUDA);
  expect_same_bits(quantize_rows(gpu.narrow(2, 4, 64)), quantize_rows(x.narrow(2, 4, 64)));
}

TEST_F(Fp8OnGpu, AppliesTheGeluOfTorchWhileQuantizing) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t channels : {64, 7680, 13824}) {
      const at::Tensor x = (at::randn({130, channels}) * 3).to(dtype);
      at::Tensor gpu = x.to(at::kCUDA);
      const Activation ours = gelu_tanh_quantize_rows_(gpu, kE4m3);
      const at::Tensor back = ours.values.to(at::kFloat) * ours.scale;
      const at::Tensor exact = at::gelu(x.to(at::kDouble), "tanh");
      // Rounding to e4m3 errs by at most half a step: 1/16 of a normal number, or 2^-10 of a smaller number if the
      // row's largest value is scaled to 448.
      const at::Tensor most = exact.abs() / 15.9 + exact.abs().amax(1, true) / 448 / 1000;
      EXPECT_TRUE(((back.cpu().to(at::kDouble) - exact).abs() <= most).all().item<bool>()) << channels << dtype;
    }
  }
}

TEST_F(Fp8OnGpu, GivesTheSameBitsForANormInTheSamePassAsInTwoPasses) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t channels : {16, 256, 1536, 1920, 3072, 5120}) {
      SCOPED_TRACE(testing::Message() << channels << " " << dtype);
      const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kCUDA, dtype); };
      const auto vectors = [&] {
        return Modulation{random({2, channels}), random({2, channels}), random({2, channels})};
      };
      const JointModulation gates = {vectors(), vectors()}, modulation = {vectors(), vectors()};
      const Norm norm = {random({channels}), random({channels})};
      const at::Tensor x = random({2, 131, channels}), update = random({2, 131, channels});
      at::Tensor first = x.clone(), second = x.clone();
      const at::Tensor apart = add_gated_norm_modulate_(first, update, gates, norm, 1e-5, 100, modulation);
      const Activation together = norm_modulate_quantize_(second, update, gates, norm, 1e-5, 100, modulation, kE4m3);
      expect_same_bits({together.values, together.scale.cpu(), dtype}, quantize_rows(apart.cpu()));
      EXPECT_TRUE(first.equal(second));
      expect_same_bits(norm_modulate_quantize_(second, {}, {}, norm, 1e-5, 100, modulation, kE4m3),
                       quantize_rows(layer_norm_modulate(first, norm, 1e-5, 100, modulation).cpu()));
    }
  }
}

TEST_F(Fp8OnGpu, MatchesTheProductsOfTheEmulation) {
  for (const auto& [rows, out, in] : {std::tuple(1, 16, 16), {3, 48, 64}, {77, 5760, 1920}, {1001, 1536, 8960}}) {
    for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << in << " -> " << out << " " << dtype);
      const Linear gpu = layer(out, in), cpu = on_cpu(gpu);
      const at::Tensor x = at::randn({1, rows, in}).to(dtype);
      const at::Tensor y = linear(x.to(at::kCUDA), gpu), expected = linear(x, cpu).to(at::kDouble);
      EXPECT_EQ(y.scalar_type(), dtype);
      EXPECT_EQ(y.sizes(), at::IntArrayRef({1, rows, out}));
      EXPECT_LT(relative_l1(y, expected), 4e-3);  // twice the rounding error of bf16
    }
  }
}

/// With fast accumulation, tensor cores of compute capability 9.0 keep about 14 bits of a sum. If all terms have the
/// same sign, the sum of 13824 terms comes out 7% too small.
TEST_F(Fp8OnGpu, LosesLittleInFastSumsOfOneSidedInputs) {
  const int64_t in = 13824;
  const at::Tensor x = at::gelu(at::randn({256, in}) * 2, "tanh").to(at::kBFloat16);
  for (const bool positive : {false, true}) {
    Linear gpu = layer(512, in);
    if (positive) gpu.weight = gpu.weight.view(at::kByte).bitwise_and(0x7F).view(at::kFloat8_e4m3fn);
    gpu.bias.zero_();
    const at::Tensor expected = linear(x, on_cpu(gpu)).to(at::kDouble);
    const double error = relative_l1(linear(x.to(at::kCUDA), gpu), expected);
    RecordProperty(positive ? "one_signed" : "signed", std::to_string(error));
    EXPECT_LT(error, positive ? 0.09 : 8e-3);
  }
}

TEST_F(Fp8OnGpu, ComputesTheSameWithOffloadedLayers) {
  Component component;
  component.random_seed = 1;
  const auto list = [](std::vector<Linear>& layers) {
    std::vector<Slots> slots;
    for (size_t i = 0; i < layers.size(); ++i)
      slots.push_back(slots_of([&](const Visit& visit) {
        layers[i].weights(in_fp8(visit), "layer." + std::to_string(i), 64 * (static_cast<int64_t>(i) + 1), 96);
      }));
    return slots;
  };
  const auto reader =
      std::make_shared<WeightReader>(component, at::Device(at::kCUDA, 0), WeightFormat(at::kBFloat16, /*in_fp8=*/true));
  std::vector<Linear> resident(3), streamed(3);
  load_layers(reader, list(resident), Residence::device);
  const auto weights = load_layers(reader, list(streamed), Residence::host);
  const at::Tensor x = at::randn({7, 96}).to(at::kCUDA, at::kBFloat16);
  for (const size_t i : {0, 1, 2, 0, 2}) {
    weights->visit(i);
    EXPECT_TRUE(streamed[i].is_fp8());
    EXPECT_TRUE(linear(x, streamed[i]).equal(linear(x, resident[i])));
  }
}

/// Compares the error of an 8-bit forward pass on the GPU with that on the CPU. The GPU rounds differently and sums in
/// another order, which may add a little.
TEST_F(Fp8OnGpu, ErrsAsMuchAsTheEmulationInWholeForwards) {
  for (const test::ParityCase& one : test::parity_cases("dit_cases.json")) {
    const test::Golden golden(one.family->folder + "dit_golden");
    const auto run = [&](at::Device device) {
      const auto transformer =
          load_transformer(test::transformer_component(one), device, {at::kBFloat16, /*in_fp8=*/true});
      AttentionRun how;
      const test::TransformerForward given =
          test::transformer_forward(one, golden, at::TensorOptions().device(device).dtype(at::kBFloat16));
      return transformer->forward(given.latents, given.conditioning, given.timesteps, how).to(at::kCPU, at::kDouble);
    };
    const at::Tensor exact = golden[one.name + "/output"].to(at::kDouble);
    const double gpu = relative_l1(run(at::kCUDA), exact), cpu = relative_l1(run(at::kCPU), exact);
    RecordProperty(one.name, std::to_string(gpu) + " cpu " + std::to_string(cpu));
    EXPECT_LT(gpu, 1.3 * cpu) << one.name;
  }
}

}  // namespace
}  // namespace sparsereel::models
