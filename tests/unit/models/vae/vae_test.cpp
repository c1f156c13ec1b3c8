// What the pipeline relies on: frame counts, progress, memory, errors.
#include "models/families/cogvideox/loaders.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/decoder_checks.h"
#include "tests/support/families.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class VaeTest : public ::testing::Test {
 protected:
  const c10::InferenceMode inference;
  Component component = test::vae_component(test::parity_families().front(), "vae_small");
  std::unique_ptr<Vae> vae = load_vae(component, at::kCPU, at::kFloat);
};

TEST_F(VaeTest, MakesAsManyFramesAsItSays) {
  for (const int64_t latent_frames : {1, 2, 3, 4, 5}) {
    const at::Tensor frames = vae->decode(at::randn({1, 4, latent_frames, 2, 3}), false);
    EXPECT_EQ(frames.sizes(), (at::IntArrayRef{1, 3, vae->frames_of(latent_frames), 16, 24}));
  }
  EXPECT_EQ(vae->frames_of(13), 49);
  EXPECT_EQ(vae->frames_of(12), 48);
}

TEST_F(VaeTest, ReportsEachBatchOfEachTile) {
  std::vector<std::pair<int64_t, int64_t>> seen;
  const auto progress = [&](int64_t done, int64_t total) { seen.emplace_back(done, total); };
  vae->decode(at::randn({1, 4, 5, 2, 2}), false, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 2), Pair(2, 2)));
  seen.clear();
  vae->decode(at::randn({1, 4, 1, 2, 6}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST_F(VaeTest, UndoesTheScaleOfTheLatents) {
  const at::Tensor latents = at::randn({1, 4, 2, 2, 6});
  component.config["scaling_factor"] = 0.5;
  const auto scaled = load_cogvideox_vae(component, at::kCPU, at::kFloat);
  for (const bool tiled : {false, true})
    EXPECT_TRUE(scaled->decode(latents, tiled).equal(vae->decode(latents * 2, tiled))) << tiled;
}

TEST_F(VaeTest, DoesNotTileWhatFitsInOneTile) {
  const at::Tensor latents = at::randn({1, 4, 2, 6, 5});
  EXPECT_TRUE(vae->decode(latents, true).equal(vae->decode(latents, false)));
}

TEST_F(VaeTest, RefusesToEncodeWithoutAnEncoder) {
  EXPECT_FALSE(vae->encodes());
  EXPECT_TRUE(test::throws_error([&] { vae->encode(at::zeros({1, 3, 1, 16, 16}), false); }, {"cannot encode"}));
  EXPECT_TRUE(test::throws_error([&] { load_vae(component, at::kCPU, at::kFloat, VaeParts::both); },
                                 {"the encoder of AutoencoderKLCogVideoX is not supported"}));
}

TEST_F(VaeTest, RefusesLatentsOfAnotherModel) {
  test::expect_other_latents_refused(*vae);
}

TEST_F(VaeTest, EstimatesItsPeakMemory) {
  for (const auto& [frames, height, width] : {std::tuple{1, 16, 16}, std::tuple{2, 16, 24}, std::tuple{5, 20, 16}})
    test::expect_peak_memory(*vae, at::randn({1, 4, frames, height, width}));
}

}  // namespace
}  // namespace sparsereel::models
