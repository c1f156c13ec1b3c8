// Tests that decoded pieces of any size become the frames of one video, and that statistics about the frames do not
// depend on the pieces.
#include "models/engine/frames.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <limits>

#include "hilbert/error.h"
#include "models/request/frame_sink.h"
#include "models/request/outcome.h"

namespace sparsereel::models {
namespace {

class CollectedFrames final : public FrameSink {
 public:
  explicit CollectedFrames(at::ScalarType dtype) : dtype_(dtype) {}
  at::ScalarType dtype() const override { return dtype_; }
  void begin(const VideoShape&, bool) override {}
  void take(const at::Tensor& frames) override {
    EXPECT_TRUE(frames.is_contiguous());
    pieces_.push_back(frames);
  }
  at::Tensor all() const { return at::cat(pieces_); }

 private:
  at::ScalarType dtype_;
  std::vector<at::Tensor> pieces_;
};

/// Returns decoder output [1, 3, 7, 4, 6]. Some values are above 1 or below -1, the range that can be displayed.
at::Tensor decoded() {
  return at::randn({1, 3, 7, 4, 6}) * 0.7;
}

FrameFacts deliver(const at::Tensor& video, FrameSink& sink) {
  FrameDelivery delivery(sink);
  for (const at::Tensor& piece : video.split(3, 2)) delivery.add(piece);
  return delivery.finish();
}

TEST(FrameDelivery, DeliversAllFramesInDisplayableRange) {
  const c10::InferenceMode guard;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor video = decoded().to(dtype);
    CollectedFrames taken(at::kFloat);
    const FrameFacts facts = deliver(video, taken);
    EXPECT_TRUE(taken.all().equal(shown_frames(video)));
    EXPECT_EQ(facts.shape.frames, 7);
    EXPECT_EQ(facts.shape.height, 4);
    EXPECT_EQ(facts.shape.width, 6);
    EXPECT_EQ(facts.largest, shown_frames(video).max().item<float>());
    EXPECT_TRUE(facts.first.equal(shown_frames(video).narrow(0, 0, 1)));
    EXPECT_TRUE(at::allclose(facts.colors, shown_frames(video).mean({1, 2})));
  }
}

TEST(FrameDelivery, RoundsBytesToNearest) {
  const c10::InferenceMode guard;
  const at::Tensor levels = at::arange(256, at::kFloat).view({1, 1, 1, 16, 16}).expand({1, 3, 1, 16, 16}) / 255;
  for (const double off : {-0.49, 0.0, 0.49}) {
    CollectedFrames taken(at::kByte);
    deliver((levels + off / 255) * 2 - 1, taken);
    EXPECT_TRUE(taken.all().to(at::kLong).select(3, 0).flatten().equal(at::arange(256))) << off;
  }
}

TEST(FrameFacts, DetectNaNInAnyPiece) {
  const c10::InferenceMode guard;
  for (int64_t frame = 0; frame < 7; ++frame) {
    const at::Tensor video = decoded();
    video[0][1][frame][2][3].fill_(std::numeric_limits<float>::quiet_NaN());
    CollectedFrames taken(at::kByte);
    EXPECT_THROW(check_numbers(deliver(video, taken), at::kFloat), Error) << frame;
  }
}

TEST(FrameFacts, DetectABlackVideo) {
  const c10::InferenceMode guard;
  CollectedFrames taken(at::kByte);
  EXPECT_EQ(defect(deliver(at::full({1, 3, 7, 4, 6}, -1.0), taken)), "is black");
  EXPECT_EQ(defect(deliver(decoded(), taken)), "");
}

}  // namespace
}  // namespace sparsereel::models
