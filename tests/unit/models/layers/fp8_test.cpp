// Tests how a CPU quantizes rows to fp8, and how it emulates the GPU's products of such rows.
#include "models/layers/fp8.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/layers/cuda/e4m3.h"
#include "models/layers/linear.h"
#include "models/layers/residual.h"

namespace sparsereel::models {
namespace {

class Fp8 : public ::testing::Test {
 protected:
  Fp8() { at::manual_seed(5); }

  static at::Tensor back(const Activation& rows) {
    return (rows.values.to(at::kFloat).view({rows.scale.size(0), -1}) * rows.scale).view(rows.sizes());
  }

  static Linear in_fp8(const Linear& layer) {
    const Activation rows = quantize_rows(layer.weight);
    return {rows.values, layer.bias, rows.scale.view({-1})};
  }

  static Linear random_layer(int64_t out, int64_t in) {
    return {at::randn({out, in}) / std::sqrt(static_cast<double>(in)), at::randn({out})};
  }

  static double relative_l1(const at::Tensor& y, const at::Tensor& exact) {
    return ((y - exact).abs().sum() / exact.abs().sum()).item<double>();
  }

  static bool same_bits(const Activation& a, const Activation& b) {
    return a.scale.equal(b.scale) && a.values.view(at::kByte).equal(b.values.view(at::kByte));
  }

  c10::InferenceMode inference_;
};

TEST_F(Fp8, ScalesEachRowByItself) {
  const at::Tensor x = at::randn({2, 30, 64}) * at::linspace(-20, 20, 30).exp2().unsqueeze(1);
  const Activation rows = quantize_rows(x);
  EXPECT_EQ(rows.values.scalar_type(), at::kFloat8_e4m3fn);
  EXPECT_EQ(rows.sizes(), x.sizes());
  EXPECT_EQ(rows.scale.sizes(), at::IntArrayRef({60, 1}));
  EXPECT_EQ(rows.dtype, at::kFloat);
  EXPECT_TRUE(at::allclose(rows.values.to(at::kFloat).abs().amax(2), at::full({2, 30}, kE4m3Most)));
  // The error of rounding is at most half the distance of neighboring e4m3 numbers: 1/16 of a normal number. For
  // smaller numbers, it is 1/16 of the smallest normal number, 2^-6.
  const at::Tensor step = at::maximum(x.abs(), x.abs().amax(2, true) / kE4m3Most / 64) / 15.99;
  EXPECT_TRUE(((back(rows) - x).abs() <= step).all().item<bool>());
}

TEST_F(Fp8, KeepsRowsOfZeroTinyAndHugeNumbersFinite) {
  at::Tensor x = at::randn({4, 16});
  x[1].zero_();
  x[2].fill_(1e-38);
  x[3].fill_(std::numeric_limits<float>::max());
  const at::Tensor values = back(quantize_rows(x));
  EXPECT_TRUE(at::isfinite(values).all().item<bool>());
  EXPECT_TRUE(values[1].equal(at::zeros({16})));
  EXPECT_NEAR(values[3][0].item<double>() / std::numeric_limits<float>::max(), 1, 1e-6);
  const Linear layer = in_fp8(random_layer(16, 16));
  EXPECT_TRUE(linear(x, layer)[1].equal(layer.bias));
}

TEST_F(Fp8, KeepsNaNWithinItsRow) {
  at::Tensor x = at::randn({5, 32});
  x[3][7] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor finite = at::isfinite(linear(x, in_fp8(random_layer(16, 32)))).all(1);
  EXPECT_EQ(finite.sum().item<int64_t>(), 4);
  EXPECT_FALSE(finite[3].item<bool>());
}

TEST_F(Fp8, HasTheErrorOfThreeMantissaBits) {
  const Linear layer = random_layer(96, 1024), fp8 = in_fp8(layer);
  const at::Tensor x = at::randn({3, 40, 1024});
  const at::Tensor y = linear(x, fp8);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({3, 40, 96}));
  const double error = relative_l1(y - layer.bias, linear(x, layer) - layer.bias);
  EXPECT_GT(error, 0.03);  // x and the weight are rounded, each with an error of 2.6%
  EXPECT_LT(error, 0.045);
  // The result must equal the product of the values that the 8-bit numbers stand for.
  const at::Tensor weight = fp8.weight.to(at::kFloat) * fp8.scale.unsqueeze(1);
  EXPECT_LT(relative_l1(y, at::linear(back(quantize_rows(x)), weight, layer.bias)), 1e-6);
}

TEST_F(Fp8, AllowsWeightRowsOfDifferentMagnitude) {
  Linear layer = random_layer(64, 512);
  layer.weight = layer.weight * at::linspace(-15, 15, 64).exp2().unsqueeze(1);
  layer.bias.reset();
  const at::Tensor x = at::randn({200, 512}), exact = linear(x, layer), y = linear(x, in_fp8(layer));
  for (int64_t i = 0; i < 64; ++i) EXPECT_LT(relative_l1(y.select(1, i), exact.select(1, i)), 0.06) << i;
}

TEST_F(Fp8, ReturnsProductsInTheDtypeOfTheRun) {
  const Linear layer = in_fp8({at::randn({32, 48}).to(at::kBFloat16), at::randn({32}).to(at::kBFloat16)});
  const at::Tensor x = at::randn({7, 48}).to(at::kBFloat16), y = linear(x, layer);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(linear(quantize_rows(x), layer).equal(y));
}

TEST_F(Fp8, QuantizesTheOutputOfGeluInFeedForward) {
  const Linear in = random_layer(128, 32), out = random_layer(48, 128), in8 = in_fp8(in), out8 = in_fp8(out);
  const at::Tensor x = at::randn({2, 9, 32});
  EXPECT_TRUE(feed_forward_gelu_tanh(x, in8, out8).equal(linear(at::gelu(linear(x, in8), "tanh"), out8)));
  EXPECT_TRUE(feed_forward_gelu_tanh(x, in8, out).equal(linear(at::gelu(linear(x, in8), "tanh"), out)));
  EXPECT_TRUE(feed_forward_gelu_tanh(x, in, out8).equal(linear(linear_gelu_tanh(x, in), out8)));
}

TEST_F(Fp8, QuantizesTheResidualStreamForFp8Layers) {
  const auto vectors = [] { return Modulation{at::randn({2, 32}), at::randn({2, 32}), at::randn({2, 32})}; };
  const JointModulation first = {vectors(), vectors()}, second = {vectors(), vectors()};
  const at::Tensor hidden = at::randn({2, 9, 32}), update = at::randn({2, 9, 32});
  const Linear plain = random_layer(16, 32), fp8 = in_fp8(plain);
  Residual wide(hidden.clone(), 6), narrow(hidden.clone(), 6);
  EXPECT_FALSE(wide.norm_modulate({}, 1e-5, first, plain).is_fp8());
  EXPECT_TRUE(
      same_bits(narrow.norm_modulate({}, 1e-5, first, fp8), quantize_rows(wide.norm_modulate({}, 1e-5, first))));
  wide.add(update, first);
  narrow.add(update, first);
  EXPECT_TRUE(
      same_bits(narrow.norm_modulate({}, 1e-5, second, fp8), quantize_rows(wide.norm_modulate({}, 1e-5, second))));
  EXPECT_TRUE(narrow.value().equal(wide.value()));
}

TEST_F(Fp8, IsEmulatedOnTheCpu) {
  EXPECT_EQ(why_no_fp8(at::kCPU), "");
  EXPECT_EQ(faster_8_bits(at::kCPU), "int8") << "a CPU emulates fp8";
}

}  // namespace
}  // namespace sparsereel::models
