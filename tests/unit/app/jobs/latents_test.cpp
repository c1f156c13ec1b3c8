// Tests files of latents: latents of a video, latents of a video with its sound, and files that are refused.
#include "app/jobs/latents.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using models::Latents;
using test::throws_error;

class LatentsFile : public ::testing::Test {
 protected:
  void save(const Latents& latents, LatentsPurpose purpose = LatentsPurpose::asked_for) const {
    save_latents(file_, latents, "{}", purpose);
  }

  test::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "latents.safetensors";
  at::Tensor video_ = at::randn({1, 4, 2, 3, 3}), sound_ = at::randn({1, 6, 5});
};

TEST_F(LatentsFile, KeepsVideoAndSound) {
  save({video_, sound_});
  const SavedLatents saved = load_latents(file_);
  EXPECT_TRUE(saved.latents.video.equal(video_));
  EXPECT_TRUE(saved.latents.sound.equal(sound_));
  EXPECT_EQ(saved.recipe, "{}");
}

TEST_F(LatentsFile, HasNoSoundForAVideoAlone) {
  save(video_);
  EXPECT_FALSE(load_latents(file_).latents.sound.defined());
}

TEST_F(LatentsFile, IsRecognizedByVideoAndSound) {
  save({video_, sound_}, LatentsPurpose::until_the_video_is_written);
  EXPECT_TRUE(are_kept_in(file_, {video_, sound_}));
  EXPECT_FALSE(are_kept_in(file_, video_));
  EXPECT_FALSE(are_kept_in(file_, {video_, sound_ + 1}));
  EXPECT_FALSE(are_kept_in(file_, {video_ + 1, sound_}));
  save(video_, LatentsPurpose::until_the_video_is_written);
  EXPECT_TRUE(are_kept_in(file_, video_));
  EXPECT_FALSE(are_kept_in(file_, {video_, sound_}));
  save(video_);
  EXPECT_FALSE(are_kept_in(file_, video_)) << "the user asked for it";
}

TEST_F(LatentsFile, NamesTheTensorThatIsWrong) {
  save({video_, at::full({1, 6, 5}, std::numeric_limits<float>::infinity())});
  EXPECT_TRUE(throws_error([&] { load_latents(file_); }, {file_.string(), "the tensor sound holds NaN or Inf"}));
  save({video_, at::zeros({6, 5})});
  EXPECT_TRUE(throws_error([&] { load_latents(file_); }, {"the tensor sound does not have three dimensions"}));
  save(at::zeros({4, 2, 3, 3}));
  EXPECT_TRUE(throws_error([&] { load_latents(file_); }, {"the tensor latents does not have five dimensions"}));
}

}  // namespace
}  // namespace sparsereel::app
