// Compares group norms, over single frames and over whole videos, with plain formulas.
#include "models/vae/group_norm.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

TEST(GroupNormSilu, NormalizesEachFrameByItself) {
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

TEST(VideoNormSilu, NormalizesAllFramesTogether) {
  const c10::InferenceMode inference;
  for (const int64_t groups : {1, 4, 12}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const GroupNorm norm = {.norm = {at::randn({12}, dtype), at::randn({12}, dtype)}, .groups = groups};
      const at::Tensor level = at::tensor({-2.0F, 0.0F, 5.0F}).view({3, 1, 1, 1});  // each frame has another mean
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

}  // namespace
}  // namespace sparsereel::models
