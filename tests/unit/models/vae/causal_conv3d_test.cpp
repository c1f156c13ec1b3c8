// Compares causal 3D convolutions with plain formulas, for frames that come at once and for frames that come in several
// pieces.
#include "models/vae/causal_conv3d.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

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

TEST_F(CausalConv, RepeatsTheFirstFrameBeforeTheStart) {
  ConvHistory history;
  const at::Tensor first = video.narrow(0, 0, 1);
  const at::Tensor padded = at::cat({first, first, video}).permute({3, 0, 1, 2}).unsqueeze(0).contiguous();
  const at::Tensor expected = at::conv3d(padded, conv.weight, conv.bias, 1, {0, 1, 1})[0].permute({1, 2, 3, 0});
  EXPECT_TRUE(test::close_to(run(video, history), expected, 1e-6));
}

TEST_F(CausalConv, PadsTheStartWithZerosOnRequest) {
  ConvHistory history{.starts_on_zeros = true};
  const at::Tensor padded = at::cat({at::zeros({2, 4, 6, 3}), video}).permute({3, 0, 1, 2}).unsqueeze(0).contiguous();
  const at::Tensor expected = at::conv3d(padded, conv.weight, conv.bias, 1, {0, 1, 1})[0].permute({1, 2, 3, 0});
  EXPECT_TRUE(test::close_to(run(video, history), expected, 1e-6));
}

TEST_F(CausalConv, GivesTheSameFramesInBatches) {
  ConvHistory whole, parts;
  const at::Tensor expected = run(video, whole);
  const at::Tensor batches = at::cat(
      {run(video.narrow(0, 0, 1), parts), run(video.narrow(0, 1, 4), parts), run(video.narrow(0, 5, 2), parts)});
  EXPECT_TRUE(test::close_to(batches, expected, 1e-6));
}

TEST_F(CausalConv, ConvolvesASinglePictureInTwoDimensions) {
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

TEST_F(CausalConv, KeepsNoHistoryAtTheEndOfAVideo) {
  ConvHistory history, ending;
  run(video.narrow(0, 0, 3), history);
  run(video.narrow(0, 0, 3), ending);
  ending.ends = true;
  const at::Tensor rest = video.narrow(0, 3, 4);
  EXPECT_TRUE(run(rest, ending).equal(run(rest, history)));
  EXPECT_FALSE(ending.frames.at(&conv).defined());
  EXPECT_TRUE(history.frames.at(&conv).defined());
}

TEST_F(CausalConv, RepeatsTheEdgesOfAFrameOnRequest) {
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

}  // namespace
}  // namespace sparsereel::models
