// What the pipeline relies on of Wan's decoder: frame counts, progress, memory, errors.
#include "models/families/wan/loaders.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/families/wan/decoder.h"
#include "tests/support/decoder_checks.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class WanVae : public ::testing::Test {
 protected:
  static Component component_of(const std::string& folder) {
    return test::vae_component({.name = "", .folder = "wan/", .dit_class = "", .vae_class = "AutoencoderKLWan"},
                               folder);
  }
  static std::unique_ptr<Vae> load(const std::string& folder) {
    const Component component = component_of(folder);
    return load_wan_vae(component, at::kCPU, at::kFloat);
  }

  const c10::InferenceMode inference;
};

TEST_F(WanVae, MakesAsManyFramesAsItSays) {
  struct Case {
    std::string folder;
    int64_t channels, scale, ratio;
  };
  for (const auto& [folder, channels, scale, ratio] :
       {Case{"vae_plain", 4, 8, 4}, Case{"vae_residual", 5, 16, 4}, Case{"vae_plain_other", 3, 4, 2},
        Case{"vae_residual_other", 3, 4, 2}}) {
    const auto vae = load(folder);
    for (const int64_t latent_frames : {1, 2, 3}) {
      const at::Tensor frames = vae->decode(at::randn({1, channels, latent_frames, 2, 3}), false);
      EXPECT_EQ(vae->frames_of(latent_frames), ratio * (latent_frames - 1) + 1);
      EXPECT_EQ(frames.sizes(), (at::IntArrayRef{1, 3, vae->frames_of(latent_frames), 2 * scale, 3 * scale}));
    }
  }
}

TEST_F(WanVae, ReportsEachFrameOfEachTile) {
  const auto vae = load("vae_residual");
  std::vector<std::pair<int64_t, int64_t>> seen;
  const auto progress = [&](int64_t done, int64_t total) { seen.emplace_back(done, total); };
  vae->decode(at::randn({1, 5, 3, 1, 1}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 3), Pair(2, 3), Pair(3, 3)));
  seen.clear();
  vae->decode(at::randn({1, 5, 1, 1, 17}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST_F(WanVae, DoesNotTileWhatFitsInOneTile) {
  const auto vae = load("vae_plain");
  const at::Tensor latents = at::randn({1, 4, 1, 2, 32});
  EXPECT_TRUE(vae->decode(latents, true).equal(vae->decode(latents, false)));
}

TEST_F(WanVae, RefusesLatentsOfAnotherModel) {
  test::expect_other_latents_refused(*load("vae_plain"));
}

TEST_F(WanVae, EstimatesItsPeakMemory) {
  for (const auto& [folder, channels] :
       {std::pair{"vae_plain", 4}, {"vae_residual", 5}, {"vae_plain_other", 3}, {"vae_residual_other", 3}}) {
    SCOPED_TRACE(folder);
    const auto vae = load(folder);
    for (const auto& [frames, height, width] : {std::tuple{1, 16, 16}, std::tuple{2, 16, 24}, std::tuple{5, 20, 16}})
      test::expect_peak_memory(*vae, at::randn({1, channels, frames, height, width}));
  }
}

TEST_F(WanVae, GivesTheSameFramesHoweverAVideoIsCutBehindItsFirst) {
  for (const std::string folder : {"vae_plain", "vae_residual"}) {
    SCOPED_TRACE(folder);
    const Component component = component_of(folder);
    const WanVaeConfig config = parse_wan_vae_config(component.config, component.config_file);
    WanDecoder decoder;
    decoder.weights(
        [](at::Tensor& tensor, const Parameter& parameter) {
          const int64_t inputs = at::zeros({}).expand(parameter.shape)[0].numel();
          tensor = at::randn(parameter.shape) / std::sqrt(static_cast<double>(inputs));
        },
        config);
    decoder.finish();
    const at::Tensor latents = at::randn({6, 2, 3, config.z_dim});
    const auto decode = [&](const std::vector<int64_t>& cuts) {
      ConvHistory history{.starts_on_zeros = true};
      std::vector<at::Tensor> parts;
      for (const at::Tensor& chunk : latents.split_with_sizes(cuts))
        parts.push_back(decode_frames(decoder, chunk, history));
      return at::cat(parts);
    };
    const at::Tensor one_by_one = decode({1, 1, 1, 1, 1, 1});
    EXPECT_TRUE(test::close_to(decode({1, 5}), one_by_one, 1e-5));
    EXPECT_TRUE(test::close_to(decode({1, 2, 3}), one_by_one, 1e-5));
  }
}

}  // namespace
}  // namespace sparsereel::models
