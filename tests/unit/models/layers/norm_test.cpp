// Compares the fused norm and gate with the torch operators that they replace.
#include "models/layers/norm.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/layers/residual.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;

Modulation random_modulation(int64_t batch, int64_t channels, at::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype);
  return {at::randn({batch, channels}, options), at::randn({batch, channels}, options),
          at::randn({batch, channels}, options)};
}

at::Tensor modulated(const at::Tensor& x, const Norm& norm, double eps, const Modulation& m) {
  const at::Tensor y = norm.rms ? at::rms_norm(x, {x.size(2)}, norm.weight, eps)
                                : at::layer_norm(x, {x.size(2)}, norm.weight, norm.bias, eps);
  return y * (1 + m.scale.unsqueeze(1)) + m.shift.unsqueeze(1);
}

Norm in_fp32(const Norm& norm) {
  const auto wide = [](const at::Tensor& x) { return x.defined() ? x.to(at::kFloat) : x; };
  return {wide(norm.weight), wide(norm.bias), norm.rms};
}

Modulation in_fp32(const Modulation& m) {
  return {m.shift.to(at::kFloat), m.scale.to(at::kFloat), m.gate.to(at::kFloat)};
}

struct Shape {
  int64_t batch, video, text, channels;
};

class NormLayer : public ::testing::TestWithParam<Shape> {
 protected:
  NormLayer() { at::manual_seed(11); }
  c10::InferenceMode inference_;
  Shape shape_ = GetParam();
};

TEST_P(NormLayer, ModulatesVideoAndTextByTheirOwnVectors) {
  const auto [batch, video, text, channels] = shape_;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto options = at::TensorOptions().dtype(dtype);
    const at::Tensor x = at::randn({batch, video + text, channels}, options) + 3;
    const JointModulation m = {random_modulation(batch, channels, dtype), random_modulation(batch, channels, dtype)};
    for (const Norm& norm : {Norm{}, Norm{at::randn({channels}, options), at::randn({channels}, options)},
                             Norm{at::randn({channels}, options), {}, /*rms=*/true}}) {
      const at::Tensor wide = x.to(at::kFloat);  // fp32, so that only the result is rounded
      const at::Tensor expected =
          at::cat({modulated(wide.narrow(1, 0, video), in_fp32(norm), 1e-5, in_fp32(m.video)),
                   modulated(wide.narrow(1, video, text), in_fp32(norm), 1e-5, in_fp32(m.text))},
                  1)
              .to(dtype);
      const at::Tensor actual = layer_norm_modulate(x, norm, 1e-5, video, m);
      EXPECT_EQ(actual.scalar_type(), dtype);
      EXPECT_TRUE(close_to(actual, expected, dtype == at::kFloat ? 2e-6 : 0)) << dtype;
    }
  }
}

TEST_P(NormLayer, ModulatesAPartOfALongerTensor) {
  const auto [batch, video, text, channels] = shape_;
  const at::Tensor x = at::randn({batch, video + text, channels});
  const Norm norm = {at::randn({channels}), at::randn({channels})};
  const JointModulation m = {random_modulation(batch, channels, at::kFloat), {}};
  const at::Tensor part = x.narrow(1, 0, video);
  EXPECT_TRUE(close_to(layer_norm_modulate(part, norm, 1e-5, video, m), modulated(part, norm, 1e-5, m.video), 2e-6));
}

TEST_P(NormLayer, AddsVideoAndTextThroughTheirOwnGates) {
  const auto [batch, video, text, channels] = shape_;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto options = at::TensorOptions().dtype(dtype);
    at::Tensor x = at::randn({batch, video + text, channels}, options);
    const at::Tensor update = at::randn(x.sizes(), options);
    const JointModulation m = {random_modulation(batch, channels, dtype), random_modulation(batch, channels, dtype)};
    const at::Tensor gate = at::cat({m.video.gate.unsqueeze(1).expand({batch, video, channels}),
                                     m.text.gate.unsqueeze(1).expand({batch, text, channels})},
                                    1);
    const at::Tensor expected = (x.to(at::kFloat) + gate.to(at::kFloat) * update.to(at::kFloat)).to(dtype);
    add_gated_(x, update, video, m);
    EXPECT_TRUE(close_to(x, expected, dtype == at::kFloat ? 1e-6 : 0)) << dtype;
  }
}

TEST_P(NormLayer, AddsAndNormalizesInOnePassWithTheSameResult) {
  const auto [batch, video, text, channels] = shape_;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto options = at::TensorOptions().dtype(dtype);
    at::Tensor x = at::randn({batch, video + text, channels}, options), twice = x.clone();
    const at::Tensor update = at::randn(x.sizes(), options);
    const Norm norm = {at::randn({channels}, options), at::randn({channels}, options)};
    const JointModulation gates = {random_modulation(batch, channels, dtype),
                                   random_modulation(batch, channels, dtype)};
    const JointModulation m = {random_modulation(batch, channels, dtype), random_modulation(batch, channels, dtype)};
    const at::Tensor actual = add_gated_norm_modulate_(x, update, gates, norm, 1e-5, video, m);
    add_gated_(twice, update, video, gates);
    EXPECT_TRUE(at::equal(x, twice)) << dtype;
    EXPECT_TRUE(at::equal(actual, layer_norm_modulate(twice, norm, 1e-5, video, m))) << dtype;
  }
}

TEST_P(NormLayer, AddsEveryUpdateOnceToAResidualStream) {
  const auto [batch, video, text, channels] = shape_;
  const int64_t video_tokens = video;  // Clang with OpenMP cannot capture a structured binding
  const at::Tensor x = at::randn({batch, video + text, channels});
  const JointModulation first = {random_modulation(batch, channels, at::kFloat),
                                 random_modulation(batch, channels, at::kFloat)};
  const JointModulation second = {random_modulation(batch, channels, at::kFloat),
                                  random_modulation(batch, channels, at::kFloat)};
  at::Tensor expected = x.clone();
  Residual stream(x.clone(), video);
  const auto normed = [&] { return layer_norm_modulate(expected, {}, 1e-5, video_tokens, second); };
  const at::Tensor plain = normed();
  EXPECT_TRUE(at::equal(stream.norm_modulate({}, 1e-5, second), plain));
  stream.add(plain, first);
  add_gated_(expected, plain, video, first);
  const at::Tensor once = normed();
  EXPECT_TRUE(at::equal(stream.norm_modulate({}, 1e-5, second), once));
  for (const at::Tensor& update : {once, plain}) {
    stream.add(update, second);
    add_gated_(expected, update, video, second);
  }
  EXPECT_TRUE(at::equal(stream.value(), expected));
  EXPECT_TRUE(at::equal(stream.value(), expected));
}

TEST_P(NormLayer, AddsToAResidualStreamWithoutGates) {
  const auto [batch, video, text, channels] = shape_;
  const at::Tensor x = at::randn({batch, video + text, channels}), update = at::randn(x.sizes());
  const JointModulation m = {random_modulation(batch, channels, at::kFloat),
                             random_modulation(batch, channels, at::kFloat)};
  Residual stream(x.clone(), video);
  stream.add(update);
  EXPECT_TRUE(at::equal(stream.norm_modulate({}, 1e-5, m), layer_norm_modulate(x + update, {}, 1e-5, video, m)));
  stream.add(update);
  EXPECT_TRUE(at::equal(stream.value(), x + update + update));
}

TEST_P(NormLayer, UsesTheModulationRowOfEachToken) {
  const auto [batch, video, text, channels] = shape_;
  constexpr int64_t kRows = 3;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto options = at::TensorOptions().dtype(dtype);
    const at::Tensor x = at::randn({batch, video + text, channels}, options), update = at::randn(x.sizes(), options);
    const Norm norm = {at::randn({channels}, options), at::randn({channels}, options)};
    const JointModulation m = {.video = random_modulation(kRows, channels, dtype),
                               .text = random_modulation(kRows, channels, dtype),
                               .row_of_token = at::randint(kRows, {batch, video + text}, at::kLong)};
    // The expected result: each token alone, as a sequence of one token.
    at::Tensor added = x.clone(), expected = at::empty_like(x);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t n = 0; n < video + text; ++n) {
        const auto row = m.row_of_token[b][n].item<int64_t>();
        const Modulation& modulation = n < video ? m.video : m.text;
        const auto vector = [&](at::Tensor Modulation::*member) { return (modulation.*member).narrow(0, row, 1); };
        const JointModulation own = {
            .video = {vector(&Modulation::shift), vector(&Modulation::scale), vector(&Modulation::gate)}, .text = {}};
        at::Tensor token = added.narrow(0, b, 1).narrow(1, n, 1);
        add_gated_(token, update.narrow(0, b, 1).narrow(1, n, 1), 1, own);
        expected.narrow(0, b, 1).narrow(1, n, 1).copy_(layer_norm_modulate(token, norm, 1e-5, 1, own));
      }
    }
    at::Tensor apart = x.clone(), together = x.clone();
    add_gated_(apart, update, video, m);
    EXPECT_TRUE(apart.equal(added)) << dtype;
    EXPECT_TRUE(layer_norm_modulate(apart, norm, 1e-5, video, m).equal(expected)) << dtype;
    EXPECT_TRUE(add_gated_norm_modulate_(together, update, m, norm, 1e-5, video, m).equal(expected)) << dtype;
    EXPECT_TRUE(together.equal(added)) << dtype;
    // The addition uses a row per token. The norm after it may use one row per batch entry.
    const JointModulation shared = {random_modulation(batch, channels, dtype),
                                    random_modulation(batch, channels, dtype)};
    together = x.clone();
    EXPECT_TRUE(add_gated_norm_modulate_(together, update, m, norm, 1e-5, video, shared)
                    .equal(layer_norm_modulate(added, norm, 1e-5, video, shared)))
        << dtype;
  }
}

// Computes the norm with torch's operators. `factor` has one row per batch entry.
at::Tensor rms_normed(const at::Tensor& x, double eps, const at::Tensor& factor) {
  const at::Tensor wide = x.to(at::kFloat);
  return wide * at::rsqrt(wide.square().mean(-1, true) + eps) * factor.to(at::kFloat).unsqueeze(1);
}

TEST_P(NormLayer, AppliesAFactorPerBatchEntryInRmsNorm) {
  const auto [batch, video, text, channels] = shape_;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({batch, video + text, channels}, dtype),
                     factor = at::randn({batch, channels}, dtype);
    const at::Tensor normed = rms_norm_modulate(x, 1e-6, factor);
    EXPECT_EQ(normed.scalar_type(), dtype);
    EXPECT_TRUE(close_to(normed, rms_normed(x, 1e-6, factor).to(dtype), dtype == at::kFloat ? 2e-6 : 4e-3)) << dtype;
    const at::Tensor part = x.narrow(1, 0, video);
    EXPECT_TRUE(rms_norm_modulate(part, 1e-6, factor).equal(normed.narrow(1, 0, video))) << dtype;
  }
}

TEST_P(NormLayer, AddsNormedUpdatesOnceToAResidualStream) {
  const auto [batch, video, text, channels] = shape_;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const double tolerance = dtype == at::kFloat ? 2e-6 : 8e-3;
    const at::Tensor x = at::randn({batch, video + text, channels}, dtype), update = at::randn(x.sizes(), dtype);
    const at::Tensor gate = at::randn({batch, channels}, dtype), factor = at::randn({batch, channels}, dtype);
    const JointModulation m = {random_modulation(batch, channels, dtype), random_modulation(batch, channels, dtype)};
    at::Tensor expected = (x.to(at::kFloat) + rms_normed(update, 1e-6, gate)).to(dtype);
    Residual stream(x.clone(), video);
    stream.add_normed(update, 1e-6, gate);
    EXPECT_TRUE(
        close_to(stream.rms_norm_modulate(1e-6, factor, {}).values, rms_normed(expected, 1e-6, factor), tolerance));
    stream.add_normed(update, 1e-6, gate);
    stream.add(update, m);
    EXPECT_TRUE(
        stream.rms_norm_modulate(1e-6, factor, {}).values.equal(rms_norm_modulate(stream.value(), 1e-6, factor)));
    expected = (expected.to(at::kFloat) + rms_normed(update, 1e-6, gate)).to(dtype);
    add_gated_(expected, update, video, m);
    EXPECT_TRUE(close_to(stream.value(), expected, tolerance)) << dtype;
    stream.add_normed(update, 1e-6, gate);
    expected = (expected.to(at::kFloat) + rms_normed(update, 1e-6, gate)).to(dtype);
    EXPECT_TRUE(
        close_to(stream.norm_modulate({}, 1e-5, m), layer_norm_modulate(expected, {}, 1e-5, video, m), tolerance));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, NormLayer,
                         ::testing::Values(Shape{1, 1, 0, 16}, Shape{2, 37, 5, 48}, Shape{2, 130, 33, 256},
                                           Shape{3, 4, 64, 72}),
                         [](const auto& test) { return "shape" + std::to_string(test.index); });

TEST(LayerNorm, MatchesTorchWithAndWithoutWeights) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::randn({2, 9, 40}), weight = at::randn({40}), bias = at::randn({40});
  EXPECT_TRUE(close_to(layer_norm(x, {weight, bias}, 1e-3), at::layer_norm(x, {40}, weight, bias, 1e-3), 0));
  EXPECT_TRUE(close_to(layer_norm(x, {}, 1e-3), at::layer_norm(x, {40}, {}, {}, 1e-3), 0));
}

TEST(RmsNorm, MatchesTorch) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::randn({2, 9, 40}) + 1, weight = at::randn({40});
  EXPECT_TRUE(close_to(rms_norm(x, weight, 1e-3), at::rms_norm(x, {40}, weight, 1e-3), 1e-6));
}

// In half precision, T5 rounds the normalized value, and then its product with the weight.
TEST(RmsNorm, RoundsToTheWeightsDtypeBeforeTheProduct) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::randn({2, 9, 40}) * 3, quotient = rms_norm(x, at::ones({40}), 1e-6);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor weight = at::randn({40}).to(dtype);
    EXPECT_TRUE(at::equal(rms_norm(x, weight, 1e-6), quotient.to(dtype) * weight)) << dtype;
    EXPECT_EQ(rms_norm(x.to(dtype), weight.to(at::kFloat), 1e-6).scalar_type(), at::kFloat) << dtype;
  }
}

}  // namespace
}  // namespace sparsereel::models
