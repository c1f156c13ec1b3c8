// Tests a model that makes sound, and whose weights have their own terms of use, through the interface of
// libsparsereel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sparsereel.h>

#include <string>

namespace sparsereel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

VideoRequest small_with_sound() {
  VideoRequest request;
  request.prompt = "a red circle";
  request.width = request.height = 64;
  request.frames = 22;
  request.steps = 2;
  return request;
}

TEST(LibrarySound, ComesWithTheVideo) {
  TextToVideo model(SPARSEREEL_TEST_DATA "/minimax_h3/pipeline", {.device = "cpu"});
  VideoRequest request = small_with_sound();
  const Video loud = model.generate(request);
  EXPECT_EQ(loud.channels, 2);
  EXPECT_EQ(loud.sampling_rate, 800);
  EXPECT_EQ(loud.sound.size(), 2U * 740);
  request.no_audio = true;
  const Video silent = model.generate(request);
  EXPECT_THAT(silent.sound, IsEmpty());
  EXPECT_EQ(silent.pixels, loud.pixels);
}

TEST(LibrarySound, FirstVideoSaysWhereTheTermsOfTheWeightsAre) {
  TextToVideo model(SPARSEREEL_TEST_DATA "/minimax_h3/pipeline", {.device = "cpu"});
  VideoRequest request = small_with_sound();
  request.vae_tiling = "on";
  const std::string idle = "vae_tiling on has no effect for a model whose VAE always works in tiles of one size";
  const auto small = HasSubstr("not made for 64x64");
  EXPECT_THAT(model.generate(request).warnings, ElementsAre(HasSubstr("read its terms at https://"), idle, small));
  EXPECT_THAT(model.generate(request).warnings, ElementsAre(idle, small));
}

}  // namespace
}  // namespace sparsereel
