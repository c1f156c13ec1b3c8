// Tests products in int8: sums of integers are exact, and a rotation reduces the error of rows with outlier channels.
#include "models/layers/int8.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/layers/linear.h"
#include "models/layers/rotation.h"

namespace sparsereel::models {
namespace {

/// Returns (((a i^2 + b i + c r) mod 251) - 125) / divisor for each row r and column i.
at::Tensor formula(int64_t rows, int64_t a, int64_t b, int64_t c, double divisor) {
  at::Tensor x = at::empty({rows, 256}, at::kFloat);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < 256; ++i)
      x[r][i] = static_cast<float>(static_cast<double>((a * i * i + b * i + c * r) % 251 - 125) / divisor);
  return x;
}

Linear layer_of(const Int8Rows& rows, const at::Tensor& bias = {}) {
  Linear layer = {.weight = rows.values.view(-1).view(at::kByte), .bias = bias, .scale = rows.scale};
  layer.rows = {{Dtype::i8, rows.values.size(0), rows.values.size(1), 0}};
  layer.rows[0].rotation = rows.rotation;
  layer.rows[0].multiplies = true;
  return layer;
}

double error(const at::Tensor& found, const at::Tensor& exact) {
  return ((found - exact).norm() / exact.norm()).item<double>();
}

/// The expected numbers are those of comfy-kitchen 0.2.40 for these matrices in fp32.
TEST(Int8, MatchesComfyKitchen) {
  at::Tensor x = formula(2, 7, 13, 31, 32);
  x.select(1, 17).mul_(40);
  const at::Tensor weight = formula(3, 5, 11, 47, 1024), bias = at::tensor({0.5F, -0.25F, 1.0F});
  const Int8Rows rows = quantize_int8(x, 256), weights = quantize_int8(weight, 256);
  EXPECT_TRUE(rows.scale.allclose(at::tensor({0.1095749289F, 0.1240465045F}), 1e-6, 0));
  EXPECT_TRUE(weights.scale.allclose(at::tensor({0.00155519496F, 0.00159268116F, 0.00208480726F}), 1e-6, 0));
  EXPECT_TRUE(rows.values[0].narrow(0, 0, 8).equal(at::tensor({64, 68, -94, 111, 86, 71, -75, 56}, at::kChar)));
  EXPECT_TRUE(weights.values[1].narrow(0, 0, 6).equal(at::tensor({96, -74, -39, 9, -16, -8}, at::kChar)));
  EXPECT_EQ(rows.values.sum(1).to(at::kLong)[1].item<int64_t>(), -1296);
  const at::Tensor expected = at::tensor({5.206564F, 11.030838F, 14.788567F, 0.039508F, -3.608236F, -6.740806F});
  EXPECT_TRUE(linear(x, layer_of(weights, bias)).allclose(expected.view({2, 3}), 1e-5, 1e-5));
}

TEST(Int8, MultipliesIntegersOfAnySizeExactly) {
  at::manual_seed(1);
  for (const auto& [m, n, k] : {std::tuple(1, 1, 1), {3, 5, 7}, {33, 257, 65}, {70, 9, 1031}, {2, 300, 64}}) {
    Int8Rows x = {at::randint(-128, 128, {m, k}, at::kChar), at::ones({m})},
             w = {at::randint(-128, 128, {n, k}, at::kChar), at::ones({n})};
    x.values[0].fill_(-128);
    w.values[0].fill_(-128);
    const Linear layer = layer_of(w);
    // A row of integers whose largest magnitude is 127 does not change when it is quantized. One with -128 does.
    x.values.select(1, 0).fill_(127);
    const at::Tensor found = linear(x.values.to(at::kFloat), layer);
    const Int8Rows again = quantize_int8(x.values.to(at::kFloat), 0);
    const at::Tensor exact =
        at::mm(again.values.to(at::kDouble), w.values.to(at::kDouble).t()) * again.scale.to(at::kDouble).unsqueeze(1);
    EXPECT_TRUE(found.allclose(exact.to(at::kFloat), 1e-6, 0)) << m << " " << n << " " << k;
  }
}

TEST(Int8, RotatesBackToTheSameNumbers) {
  at::manual_seed(1);
  for (const int64_t group : {4, 16, 64, 256, 1024, 4096}) {
    const at::Tensor whole = at::randint(-128, 128, {2, 2 * group}).to(at::kFloat);
    at::Tensor turned = whole.clone();
    rotate_(turned, group);
    EXPECT_FALSE(turned.equal(whole));
    EXPECT_NEAR(turned.norm().item<double>(), whole.norm().item<double>(), 1e-3 * whole.norm().item<double>());
    rotate_(turned, group);
    EXPECT_TRUE(turned.equal(whole)) << group;
  }
}

TEST(Int8, RotatesByProductsAsInSteps) {
  at::manual_seed(1);
  for (const int64_t group : {4, 64, 256, 1024, 4096, 65536 * 4}) {
    const at::Tensor rows = at::randn({3, group < 1000 ? 2 * group : group});
    at::Tensor steps = rows.clone(), products = rows.clone();
    rotate_(steps, group);
    rotate_by_products_(products, group);
    EXPECT_TRUE(products.allclose(steps, 1e-4, 1e-5)) << group;
  }
}

TEST(Int8, KeepsOutlierChannelsFromSpoilingARow) {
  at::manual_seed(1);
  at::Tensor x = at::randn({64, 512});
  x.narrow(1, 0, 4).mul_(100);
  const at::Tensor weight = at::randn({96, 512}), exact = at::linear(x, weight);
  const Int8Rows rotated = quantize_int8_weight(weight);
  EXPECT_EQ(rotated.rotation, 256);
  const double with = error(linear(x, layer_of(rotated)), exact);
  EXPECT_LT(with, 0.02);
  EXPECT_GT(error(linear(x, layer_of(quantize_int8(weight, 0))), exact), 3 * with);
  EXPECT_EQ(quantize_int8_weight(at::randn({256, 48})).rotation, 16);
  EXPECT_EQ(quantize_int8_weight(at::randn({3, 24})).rotation, 0);
}

TEST(Int8, GivesEveryPartOfALayerItsOwnRotationAndLora) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({2, 5, 64}), a = at::randn({16, 64}), b = at::randn({8, 64}), bias = at::randn({24}),
                   up = at::randn({8, 2}), down = at::randn({2, 64}), columns = at::rand({64}) + 0.5;
  const Int8Rows first = quantize_int8(a, 64), second = quantize_int8(b, 16);
  Linear layer = layer_of(first, bias);
  layer.weight = at::cat({layer.weight, second.values.view(-1).view(at::kByte)});
  layer.scale = at::cat({first.scale, second.scale});
  layer.rows.push_back({Dtype::i8, 8, 64, 16 * 64, {{up, down, 0.5}}, 16, true, columns});
  const at::Tensor exact = at::linear(x, layer.in(at::kFloat).weight, bias);
  EXPECT_LT(error(linear(x, layer), exact), 0.02);
  at::Tensor out = at::empty({2, 5, 24});
  linear_out(out, x, layer);
  EXPECT_TRUE(out.equal(linear(x, layer)));
  EXPECT_TRUE(linear_gelu(x, layer).equal(at::gelu(linear(x, layer))));
  EXPECT_TRUE(linear_gelu_tanh(x, layer).equal(at::gelu(linear(x, layer), "tanh")));
  const at::Tensor bf16 = linear(x.to(at::kBFloat16), layer);
  EXPECT_EQ(bf16.scalar_type(), at::kBFloat16);
  EXPECT_LT(error(bf16.to(at::kFloat), exact), 0.03);
}

/// Each of several ranks that share tokens computes a range of outputs. A range may cover several parts of a fused
/// layer.
TEST(Int8, ComputesSomeOutputsOfAllParts) {
  at::manual_seed(1);
  const Int8Rows first = quantize_int8(at::randn({16, 64}), 64), second = quantize_int8(at::randn({8, 64}), 64);
  Linear layer = layer_of(first, at::randn({24}));
  layer.weight = at::cat({layer.weight, second.values.view(-1).view(at::kByte)});
  layer.scale = at::cat({first.scale, second.scale});
  layer.rows.push_back({Dtype::i8, 8, 64, 16 * 64});
  layer.rows[1].rotation = 64;
  layer.rows[1].multiplies = true;
  const at::Tensor x = at::randn({5, 64}), all = linear(x, layer);
  for (const auto& [begin, count] : {std::pair(0, 24), {0, 8}, {4, 16}, {16, 8}, {20, 4}})
    EXPECT_TRUE(linear(x, layer.outputs(begin, count)).equal(all.narrow(1, begin, count))) << begin;
}

TEST(Int8, PassesNaNAndInfinityOn) {
  const Linear layer = layer_of(quantize_int8_weight(at::randn({16, 64})));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    at::Tensor x = at::randn({3, 64});
    x[1][5] = bad;
    const at::Tensor finite = at::isfinite(linear(x, layer)).all(1);
    EXPECT_TRUE(finite.equal(at::tensor({1, 0, 1}).to(at::kBool)));
  }
  EXPECT_TRUE(linear(at::zeros({2, 64}), layer).equal(at::zeros({2, 16})));
}

}  // namespace
}  // namespace sparsereel::models
