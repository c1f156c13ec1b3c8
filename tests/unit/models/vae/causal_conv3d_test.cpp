// The layers of encoders and decoders against plain formulas.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/vae/between_convolutions.h"
#include "models/vae/causal_conv3d.h"
#include "models/vae/group_norm.h"
#include "models/vae/spatial_norm.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

class CausalConv : public ::testing::Test {
 protected:
  at::Tensor run(const at::Tensor& frames, ConvHistory& history) const {
    at::Tensor buffer = causal_buffer(frames.size(0), frames.size(1), frames.size(2), frames.size(3), frames.options());
    new_frames(buffer).copy_(frames);
    return causal_conv3d(conv, buffer, history);
  }

  const c10::InferenceMode inference;
  const CausalConv3d conv{.weight = at::randn({5, 3, 3, 3, 3}), .bias = at::randn({5})};
  const at::Tensor video = at::randn({7, 4, 6, 3});
};

TEST_F(CausalConv, SeesTheFirstFrameRepeatedBeforeIt) {
  ConvHistory history;
  const at::Tensor first = video.narrow(0, 0, 1);
  const at::Tensor padded = at::cat({first, first, video}).permute({3, 0, 1, 2}).unsqueeze(0).contiguous();
  const at::Tensor expected = at::conv3d(padded, conv.weight, conv.bias, 1, {0, 1, 1})[0].permute({1, 2, 3, 0});
  EXPECT_TRUE(test::close_to(run(video, history), expected, 1e-6));
}

TEST_F(CausalConv, SeesZerosBeforeTheFirstFrameWhereAskedTo) {
  ConvHistory history{.starts_on_zeros = true};
  const at::Tensor padded = at::cat({at::zeros({2, 4, 6, 3}), video}).permute({3, 0, 1, 2}).unsqueeze(0).contiguous();
  const at::Tensor expected = at::conv3d(padded, conv.weight, conv.bias, 1, {0, 1, 1})[0].permute({1, 2, 3, 0});
  EXPECT_TRUE(test::close_to(run(video, history), expected, 1e-6));
}

TEST_F(CausalConv, GivesTheSameFramesBatchByBatch) {
  ConvHistory whole, parts;
  const at::Tensor expected = run(video, whole);
  const at::Tensor batches = at::cat(
      {run(video.narrow(0, 0, 1), parts), run(video.narrow(0, 1, 4), parts), run(video.narrow(0, 5, 2), parts)});
  EXPECT_TRUE(test::close_to(batches, expected, 1e-6));
}

TEST_F(CausalConv, TakesAPictureInTwoDimensions) {
  for (const bool starts_on_zeros : {false, true}) {
    ConvHistory history{.starts_on_zeros = starts_on_zeros};
    const at::Tensor first = video.narrow(0, 0, 1), before = starts_on_zeros ? at::zeros_like(first) : first;
    const at::Tensor padded = at::cat({before, before, first}).permute({3, 0, 1, 2}).unsqueeze(0).contiguous();
    const at::Tensor expected = at::conv3d(padded, conv.weight, conv.bias, 1, {0, 1, 1})[0].permute({1, 2, 3, 0});
    EXPECT_TRUE(test::close_to(run(first, history), expected, 1e-6)) << starts_on_zeros;
    const at::Tensor next = at::cat({before, video.narrow(0, 0, 2)}).permute({3, 0, 1, 2}).unsqueeze(0).contiguous();
    EXPECT_TRUE(test::close_to(run(video.narrow(0, 1, 1), history),
                               at::conv3d(next, conv.weight, conv.bias, 1, {0, 1, 1})[0].permute({1, 2, 3, 0}), 1e-6))
        << "the second frame sees the first";
  }
}

TEST_F(CausalConv, RemembersNothingOfAVideosEnd) {
  ConvHistory history, ending;
  run(video.narrow(0, 0, 3), history);
  run(video.narrow(0, 0, 3), ending);
  ending.ends = true;
  const at::Tensor rest = video.narrow(0, 3, 4);
  EXPECT_TRUE(run(rest, ending).equal(run(rest, history)));
  EXPECT_FALSE(ending.frames.at(&conv).defined());
  EXPECT_TRUE(history.frames.at(&conv).defined());
}

TEST(DownsamplePixels, SeesZerosBehindEachFrame) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::randn({3, 6, 10, 4}), weight = at::randn({5, 4, 3, 3}), bias = at::randn({5});
  const at::Tensor padded = at::constant_pad_nd(x.permute({0, 3, 1, 2}), {0, 1, 0, 1});
  EXPECT_TRUE(test::close_to(downsample_pixels(x, weight.contiguous(at::MemoryFormat::ChannelsLast), bias),
                             at::conv2d(padded, weight, bias, 2).permute({0, 2, 3, 1}), 1e-6));
}

TEST_F(CausalConv, SeesItsOwnEdgeAroundAFrameWhereAskedTo) {
  CausalConv3d repeating = conv;
  repeating.repeats_edges = true;
  ASSERT_EQ(repeating.border().rows, 1);
  ASSERT_EQ(repeating.border().columns, 1);
  const auto convolved = [&](const at::Tensor& frames, ConvHistory& history) {
    const at::Tensor buffer =
        causal_buffer(frames.size(0), frames.size(1), frames.size(2), frames.size(3), frames.options(), {1, 1});
    new_frames(buffer, {1, 1}).copy_(frames);
    return causal_conv3d(repeating, buffer, history);
  };
  const at::Tensor padded = at::replication_pad3d(video.permute({3, 0, 1, 2}).unsqueeze(0), {1, 1, 1, 1, 2, 0});
  const at::Tensor expected = at::conv3d(padded, conv.weight, conv.bias)[0].permute({1, 2, 3, 0});
  ConvHistory whole, parts;
  EXPECT_TRUE(test::close_to(convolved(video, whole), expected, 1e-6));
  const at::Tensor batches =
      at::cat({convolved(video.narrow(0, 0, 3), parts), convolved(video.narrow(0, 3, 4), parts)});
  EXPECT_TRUE(test::close_to(batches, expected, 1e-6));
}

TEST(GroupNormSilu, NormalisesEachFrameByItself) {
  const c10::InferenceMode inference;
  for (const int64_t groups : {1, 4, 12}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const GroupNorm norm = {.norm = {at::randn({12}, dtype), at::randn({12}, dtype)}, .groups = groups};
      const at::Tensor x = (at::randn({3, 5, 7, 12}) + 30).to(dtype), bias = at::randn({12}, dtype);
      const at::Tensor buffer = at::full({3, 9, 8, 12}, -7, dtype), out = buffer.narrow(1, 2, 5).narrow(2, 1, 7);
      group_norm_silu(norm, x, out, bias);
      const at::Tensor frames = (x + bias).to(at::kDouble).permute({0, 3, 1, 2});
      const at::Tensor expected = at::silu(
          at::group_norm(frames, groups, norm.norm.weight.to(at::kDouble), norm.norm.bias.to(at::kDouble), norm.eps));
      EXPECT_TRUE(test::close_to(out.to(at::kFloat), expected.permute({0, 2, 3, 1}).to(at::kFloat),
                                 dtype == at::kFloat ? 1e-4 : 1e-2))
          << groups << " " << dtype;
      EXPECT_EQ(buffer.eq(-7).sum().item<int64_t>(), 3 * (9 * 8 - 5 * 7) * 12) << "what lies between rows changed";
    }
  }
}

TEST(VideoNormSilu, NormalisesAllFramesTogether) {
  const c10::InferenceMode inference;
  for (const int64_t groups : {1, 4, 12}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const GroupNorm norm = {.norm = {at::randn({12}, dtype), at::randn({12}, dtype)}, .groups = groups};
      const at::Tensor level = at::tensor({-2.0F, 0.0F, 5.0F}).view({3, 1, 1, 1});  // which frames differ in
      const at::Tensor x = (at::randn({3, 5, 7, 12}) + level).to(dtype), bias = at::randn({12}, dtype);
      const at::Tensor out = at::empty_like(x);
      video_norm_silu(norm, x, out, bias);
      const at::Tensor video = (x + bias).to(at::kDouble).permute({3, 0, 1, 2}).unsqueeze(0).contiguous();
      const at::Tensor expected = at::silu(
          at::group_norm(video, groups, norm.norm.weight.to(at::kDouble), norm.norm.bias.to(at::kDouble), norm.eps));
      EXPECT_TRUE(test::close_to(out.to(at::kFloat), expected[0].permute({1, 2, 3, 0}).to(at::kFloat),
                                 dtype == at::kFloat ? 1e-5 : 1e-2))
          << groups << " " << dtype;
    }
  }
}

TEST(LatentFrameOf, RepeatsAllFramesOfAnEvenBatchAndAllButTheFirstOfAnOddOne) {
  std::vector<int64_t> even, odd;
  for (int64_t t = 0; t < 8; ++t) even.push_back(latent_frame_of(t, 8, 2));
  for (int64_t t = 0; t < 9; ++t) odd.push_back(latent_frame_of(t, 9, 3));
  EXPECT_EQ(even, (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(odd, (std::vector<int64_t>{0, 1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(latent_frame_of(0, 1, 1), 0);
}

struct NormCase {
  int64_t channels, groups, repeat;
  double offset;  // of the values: far from zero, squares cancel
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
  // The input itself is rounded at its offset.
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

TEST(SpatialNormSilu, StaysFiniteForHugeValuesAndPassesNanOn) {
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
