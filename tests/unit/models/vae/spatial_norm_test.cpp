// Compares norms, whose scale and shift are computed from latents, with plain formulas.
#include "models/vae/spatial_norm.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/layers/linear.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

TEST(LatentFrameOf, RepeatsAllFramesExceptTheFirstOfAnOddBatch) {
  std::vector<int64_t> even, odd;
  for (int64_t t = 0; t < 8; ++t) even.push_back(latent_frame_of(t, 8, 2));
  for (int64_t t = 0; t < 9; ++t) odd.push_back(latent_frame_of(t, 9, 3));
  EXPECT_EQ(even, (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(odd, (std::vector<int64_t>{0, 1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(latent_frame_of(0, 1, 1), 0);
}

struct NormCase {
  int64_t channels, groups, repeat;
  double offset;  // mean of the values; a large one makes E(x^2) - E(x)^2 inexact
};

class SpatialNorms : public ::testing::TestWithParam<NormCase> {
 protected:
  const c10::InferenceMode inference;
  const int64_t channels = GetParam().channels, repeat = GetParam().repeat;
  const Norm affine{.weight = at::randn({channels}), .bias = at::randn({channels})};
  const SpatialNorm norm{.norm = affine,
                         .conv_y = {.weight = at::randn({channels, 4}), .bias = at::randn({channels})},
                         .conv_b = {.weight = at::randn({channels, 4}), .bias = at::randn({channels})},
                         .groups = GetParam().groups};
  const at::Tensor z = at::randn({3, 3, 2, 4});
  const at::Tensor x = at::randn({5, 3 * repeat, 2 * repeat, channels}) + GetParam().offset;

  at::Tensor expected() const {
    at::Tensor repeated = z.index_select(0, at::tensor({0, 1, 1, 2, 2}));
    repeated = repeated.repeat_interleave(repeat, 1).repeat_interleave(repeat, 2).to(at::kDouble);
    const at::Tensor normed =
        at::group_norm(x.permute({3, 0, 1, 2}).unsqueeze(0).to(at::kDouble).contiguous(), norm.groups,
                       affine.weight.to(at::kDouble), affine.bias.to(at::kDouble), 1e-6);
    const auto pointwise = [&](const Linear& conv) {
      return at::linear(repeated, conv.weight.to(at::kDouble), conv.bias.to(at::kDouble));
    };
    return at::silu(normed[0].permute({1, 2, 3, 0}) * pointwise(norm.conv_y) + pointwise(norm.conv_b));
  }
};

TEST_P(SpatialNorms, MatchTheFormula) {
  const at::Tensor out = at::full_like(x, std::numeric_limits<float>::quiet_NaN());
  spatial_norm_silu(norm, x, z, out);
  // Values with a large offset are rounded more coarsely in fp32.
  EXPECT_TRUE(test::close_to(out, expected(), GetParam().offset == 0 ? 2e-6 : 1e-4));
}

TEST_P(SpatialNorms, MatchTheFormulaInHalfPrecision) {
  if (GetParam().offset != 0) GTEST_SKIP() << "the input does not survive bf16";
  SpatialNorm half = norm;
  for (at::Tensor* part : {&half.norm.weight, &half.norm.bias, &half.conv_y.weight, &half.conv_y.bias,
                           &half.conv_b.weight, &half.conv_b.bias})
    *part = part->to(at::kBFloat16);
  const at::Tensor out = at::empty_like(x, at::kBFloat16);
  spatial_norm_silu(half, x.to(at::kBFloat16), z.to(at::kBFloat16), out);
  EXPECT_TRUE(test::close_to(out, expected(), 0.03));
}

INSTANTIATE_TEST_SUITE_P(Cases, SpatialNorms,
                         ::testing::Values(NormCase{16, 4, 1, 0}, NormCase{6, 2, 2, 0}, NormCase{40, 8, 4, 0},
                                           NormCase{32, 32, 8, 0}, NormCase{24, 3, 2, 300}));

TEST(SpatialNormSilu, StaysFiniteForHugeValuesAndPropagatesNaN) {
  const c10::InferenceMode inference;
  const SpatialNorm norm{.norm = {.weight = at::ones({2}), .bias = at::zeros({2})},
                         .conv_y = {.weight = at::zeros({2, 1}), .bias = at::tensor({1e4F, -1e4F})},
                         .conv_b = {.weight = at::zeros({2, 1}), .bias = at::zeros({2})},
                         .groups = 2};
  at::Tensor x = at::randn({2, 4, 4, 2}), out = at::empty_like(x);
  const at::Tensor z = at::zeros({2, 4, 4, 1});
  spatial_norm_silu(norm, x, z, out);
  EXPECT_TRUE(at::isfinite(out).all().item<bool>());
  EXPECT_GT(out.max().item<float>(), 1e3F);
  x[1][2][3][0] = std::numeric_limits<float>::quiet_NaN();
  spatial_norm_silu(norm, x, z, out);
  EXPECT_TRUE(at::isnan(out.select(3, 0)).all().item<bool>());
  EXPECT_FALSE(at::isnan(out.select(3, 1)).any().item<bool>());
}

}  // namespace
}  // namespace sparsereel::models
