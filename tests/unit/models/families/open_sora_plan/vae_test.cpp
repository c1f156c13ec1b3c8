// Tests properties of Open-Sora-Plan's decoder on which the pipeline relies: frame counts, progress, memory, errors.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/families/open_sora_plan/loaders.h"
#include "tests/support/decoder_checks.h"
#include "tests/support/families.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class OpenSoraPlanDecoding : public ::testing::Test {
 protected:
  static std::unique_ptr<Vae> load(const std::string& folder) {
    const Component component = test::vae_component(
        {.name = "", .folder = "open_sora_plan/", .transformer_class = "", .vae_class = "CausalVAEModel"}, folder);
    return load_open_sora_plan_vae(component, at::kCPU, at::kFloat);
  }

  const c10::InferenceMode inference;
};

TEST_F(OpenSoraPlanDecoding, ProducesTheAnnouncedNumberOfFrames) {
  for (const auto& [folder, channels, scale, ratio] :
       {std::tuple{"vae_small", 4, 8, 4}, std::tuple{"vae_other", 3, 2, 2}}) {
    const auto vae = load(folder);
    for (const int64_t latent_frames : {1, 2, 7, 8, 9, 15, 16}) {
      const at::Tensor frames = vae->decode(at::randn({1, channels, latent_frames, 1, 2}), false);
      EXPECT_EQ(vae->frames_of(latent_frames), ratio * (latent_frames - 1) + 1);
      EXPECT_EQ(frames.sizes(), (at::IntArrayRef{1, 3, vae->frames_of(latent_frames), scale, 2 * scale}));
    }
  }
}

TEST_F(OpenSoraPlanDecoding, ReportsEachTileOfEachChunk) {
  const auto vae = load("vae_other");
  std::vector<std::pair<int64_t, int64_t>> seen;
  const auto progress = [&](int64_t done, int64_t total) { seen.emplace_back(done, total); };
  vae->decode(at::randn({1, 3, 16, 1, 1}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 3), Pair(2, 3), Pair(3, 3)));
  seen.clear();
  vae->decode(at::randn({1, 3, 9, 1, 65}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 4), Pair(2, 4), Pair(3, 4), Pair(4, 4)));
}

TEST_F(OpenSoraPlanDecoding, DeliversEachFrameOnlyOnce) {
  const auto vae = load("vae_small");
  EXPECT_THAT(test::pieces_of(*vae, at::randn({1, 4, 16, 1, 1}), false), ElementsAre(29, 28, 4));
  EXPECT_THAT(test::pieces_of(*vae, at::randn({1, 4, 9, 1, 65}), true), ElementsAre(8, 8, 8, 5, 4));
}

TEST_F(OpenSoraPlanDecoding, RefusesLatentsWithOtherChannels) {
  test::expect_other_latents_refused(*load("vae_small"));
}

TEST_F(OpenSoraPlanDecoding, EstimatesItsPeakMemory) {
  const auto small = load("vae_small"), other = load("vae_other");
  for (const auto& [frames, height, width] : {std::tuple{1, 16, 16}, std::tuple{2, 16, 24}, std::tuple{9, 10, 8}})
    test::expect_peak_memory(*small, at::randn({1, 4, frames, height, width}));
  // A single frame is not tested: in such a small VAE the scratch memory of the convolutions dominates.
  for (const auto& [frames, height, width] : {std::tuple{2, 16, 24}, std::tuple{9, 20, 16}})
    test::expect_peak_memory(*other, at::randn({1, 3, frames, height, width}));
}

}  // namespace
}  // namespace sparsereel::models
