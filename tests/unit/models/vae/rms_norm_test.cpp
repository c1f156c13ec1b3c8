// Compares the RMS norm over the channels of each pixel with its formula.
#include "models/vae/rms_norm.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

class RmsNorms : public ::testing::TestWithParam<int64_t> {
 protected:
  const c10::InferenceMode inference;
  const int64_t channels = GetParam();
  const at::Tensor gamma = at::randn({channels});
  const at::Tensor x = [this] {
    at::Tensor values = at::randn({2, 3, 5, channels});
    values[1][2][3].zero_();
    values[0][1][2].mul_(1e-20);  // squares underflow to zero in fp32
    values[1][0][0].mul_(1e3);
    return values;
  }();

  at::Tensor normed(const at::Tensor& values) const {
    const at::Tensor norms = values.to(at::kDouble).square().sum(-1, true).sqrt().clamp_min(1e-12);
    return values.to(at::kDouble) / norms * std::sqrt(static_cast<double>(channels)) * gamma.to(at::kDouble);
  }
};

TEST_P(RmsNorms, MatchTheFormula) {
  EXPECT_TRUE(test::close_to(rms_norm(x, gamma), normed(x), 2e-6));
  const at::Tensor out = at::full_like(x, std::numeric_limits<float>::quiet_NaN());
  rms_norm_silu(x, gamma, out);
  EXPECT_TRUE(test::close_to(out, at::silu(normed(x)), 2e-6));
}

TEST_P(RmsNorms, MatchTheFormulaInHalfPrecision) {
  const at::Tensor half = x.to(at::kBFloat16), out = at::empty_like(half);
  rms_norm_silu(half, gamma.to(at::kBFloat16), out);
  EXPECT_TRUE(test::close_to(out, at::silu(normed(half)), 0.02));
}

TEST_P(RmsNorms, RoundHalfPrecisionOnce) {
  const at::Tensor half = x.to(at::kBFloat16), weight = gamma.to(at::kBFloat16);
  EXPECT_TRUE(
      at::equal(rms_norm(half, weight), rms_norm(half.to(at::kFloat), weight.to(at::kFloat)).to(at::kBFloat16)));
}

TEST_P(RmsNorms, PropagateNaN) {
  const at::Tensor broken = x.clone(), out = at::empty_like(x);
  broken[0][0][1][channels - 1] = std::numeric_limits<float>::quiet_NaN();
  rms_norm_silu(broken, gamma, out);
  EXPECT_TRUE(at::isnan(out[0][0][1]).all().item<bool>());
  EXPECT_EQ(at::isnan(out).sum().item<int64_t>(), channels);
}

INSTANTIATE_TEST_SUITE_P(Channels, RmsNorms, ::testing::Values(1, 6, 16, 40, 96));

}  // namespace
}  // namespace sparsereel::models
