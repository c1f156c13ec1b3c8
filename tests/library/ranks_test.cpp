// Compares videos that several ranks of one process make together with videos of a single rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/library/small_requests.h"

namespace sparsereel {
namespace {

using test::failure_of;
using test::kModel;
using test::small;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr float kNear = 1e-4F;  // bound on differences: several ranks add in another order

Video made(int gpus, const VideoRequest& request = small()) {
  return TextToVideo(kModel, {.device = "cpu", .gpus = gpus}).generate(request);
}

TEST(LibraryRanks, MakeTheSameVideoAsOneRank) {
  const Video one = made(1);
  for (const int gpus : {2, 4}) EXPECT_THAT(made(gpus).pixels, Pointwise(FloatNear(kNear), one.pixels)) << gpus;
}

TEST(LibraryRanks, KeepTheSameBlocksAsOneRank) {
  VideoRequest request = small();
  request.width = request.height = 128;
  request.attention = "sparse";
  request.topk = 0.5;
  request.dense_steps = "0";
  const Video one = made(1, request), two = made(2, request);
  EXPECT_GT(one.sparsity, 0);
  EXPECT_EQ(two.sparsity, one.sparsity);
  EXPECT_EQ(two.mean_share, one.mean_share);
}

TEST(LibraryRanks, MakeSuccessiveVideos) {
  TextToVideo model(kModel, {.device = "cpu", .gpus = 2});
  const Video first = model.generate(small());
  EXPECT_EQ(model.generate(small()).pixels, first.pixels);
}

TEST(LibraryRanks, StopTogetherOnRequest) {
  TextToVideo model(kModel, {.device = "cpu", .gpus = 4});
  const Video first = model.generate(small());
  for (const int64_t last : {1, 2}) {
    const Failure failure =
        failure_of([&] { model.generate(small(), [&](int64_t step, int64_t) { return step < last; }); });
    EXPECT_EQ(failure.code(), 130);
  }
  EXPECT_THROW(model.generate(small(), [](int64_t, int64_t) -> bool { throw std::out_of_range("mine"); }),
               std::out_of_range);
  EXPECT_EQ(model.generate(small()).pixels, first.pixels);
}

TEST(LibraryRanks, AreRefusedIfImpossible) {
  const Failure none = failure_of([] { TextToVideo(kModel, {.device = "cpu", .gpus = 0}); });
  EXPECT_EQ(none.field(), "gpus");
  EXPECT_EQ(none.code(), 2);
  EXPECT_EQ(failure_of([] { TextToVideo(kModel, {.device = "cpu", .gpus = 65}); }).field(), "gpus");
  EXPECT_EQ(failure_of([] { TextToVideo(kModel, {.device = "cuda:0", .gpus = 2}); }).field(), "device");
  EXPECT_THAT(failure_of([] { TextToVideo(kModel, {.gpus = 60}); }).cause(),
              HasSubstr("gpus 60 exceeds the number of GPUs"));
  EXPECT_THAT(failure_of([] { made(40); }).cause(), HasSubstr("40 ranks cannot share this video"));
}

TEST(LibraryRanks, FailTogetherAndRecover) {
  TextToVideo model(kModel, {.device = "cpu", .gpus = 2});
  VideoRequest wrong = small();
  wrong.frames = 10;
  EXPECT_EQ(failure_of([&] { model.generate(wrong); }).field(), "frames");
  EXPECT_EQ(model.generate(small()).frames, 9);
}

}  // namespace
}  // namespace sparsereel
