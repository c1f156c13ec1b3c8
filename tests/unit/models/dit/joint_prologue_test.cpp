// Norms and rotary positions that attention's own prologue has no fields for, against the same in torch's operators.
#include "models/dit/joint_prologue.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kVideo = 9, kText = 4, kDim = 8;

class JointPrologue : public ::testing::Test {
 protected:
  static at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
    return at::rms_norm(x, {kDim}, weight, 1e-5);
  }
  at::Tensor turned(const at::Tensor& x) const {
    const at::Tensor even = x.slice(3, 0, c10::nullopt, 2), odd = x.slice(3, 1, c10::nullopt, 2);
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    return at::stack({even * cos - odd * sin, even * sin + odd * cos}, 4).flatten(3);
  }
  at::Tensor expected(const at::Tensor& x, const at::Tensor& video, const at::Tensor& text) const {
    return at::cat({turned(normed(x.narrow(1, 0, kVideo), video)), normed(x.narrow(1, kVideo, kText), text)}, 1);
  }

  const c10::InferenceMode inference;
  const at::Tensor angles = at::randn({kVideo, 3, kDim / 2}) * 20;
  const at::Tensor rotary = at::polar(at::ones_like(angles), angles);
  const at::Tensor qkv = at::randn({2, kVideo + kText, 2, 3, kDim});  // q and k are views of it
  const at::Tensor q = qkv.select(2, 0), k = qkv.select(2, 1);
  attention::Prologue prologue = [] {
    attention::Prologue rms;
    rms.norm = attention::Prologue::Norm::rms;
    rms.eps = 1e-5;
    rms.q_weight = at::randn({kDim});
    rms.k_weight = at::randn({kDim});
    return rms;
  }();
  const TextNorms text_norms = {.q_weight = at::randn({kDim}), .k_weight = at::randn({kDim})};
};

TEST_F(JointPrologue, TextHasItsOwnNormsAndEachHeadItsOwnPositions) {
  const auto done = joint_prologue(q, k, prologue, text_norms, rotary, kText);
  EXPECT_TRUE(test::close_to(done.q, expected(q, prologue.q_weight, text_norms.q_weight), 1e-6));
  EXPECT_TRUE(test::close_to(done.k, expected(k, prologue.k_weight, text_norms.k_weight), 1e-6));
}

TEST_F(JointPrologue, TextSharesTheVideosNormsWhereItHasNone) {
  const auto done = joint_prologue(q, k, prologue, {}, rotary, kText);
  EXPECT_TRUE(test::close_to(done.q, expected(q, prologue.q_weight, prologue.q_weight), 1e-6));
}

TEST_F(JointPrologue, WithoutPositionsNothingTurns) {
  const auto done = joint_prologue(q, k, prologue, text_norms, {}, kText);
  EXPECT_TRUE(test::close_to(done.k.narrow(1, 0, kVideo), normed(k.narrow(1, 0, kVideo), prologue.k_weight), 1e-6));
}

TEST_F(JointPrologue, WithoutTextAllTokensAreTheVideos) {
  const at::Tensor q_video = q.narrow(1, 0, kVideo), k_video = k.narrow(1, 0, kVideo);
  const auto done = joint_prologue(q_video, k_video, prologue, text_norms, rotary, 0);
  EXPECT_TRUE(test::close_to(done.q, turned(normed(q_video, prologue.q_weight)), 1e-6));
}

TEST_F(JointPrologue, HalfPrecisionIsRoundedOnceAPart) {
  const auto done = joint_prologue(q.to(at::kBFloat16), k.to(at::kBFloat16), prologue, text_norms, rotary, kText);
  EXPECT_EQ(done.q.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(test::close_to(done.q.to(at::kFloat), expected(q, prologue.q_weight, text_norms.q_weight), 2e-2));
}

}  // namespace
}  // namespace sparsereel::models
