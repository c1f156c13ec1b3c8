// Tests properties of Mochi's decoder on which the pipeline relies: frame counts, progress, memory, errors.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/families/mochi/decoder.h"
#include "models/families/mochi/loaders.h"
#include "tests/support/decoder_checks.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class MochiDecoding : public ::testing::Test {
 protected:
  static Component component_of(const std::string& folder) {
    return test::vae_component(
        {.name = "", .folder = "mochi/", .transformer_class = "", .vae_class = "AutoencoderKLMochi"}, folder);
  }
  static std::unique_ptr<Vae> load(const std::string& folder) {
    const Component component = component_of(folder);
    return load_mochi_vae(component, at::kCPU, at::kFloat);
  }

  const c10::InferenceMode inference;
};

TEST_F(MochiDecoding, ProducesTheAnnouncedNumberOfFrames) {
  struct Case {
    std::string folder;
    int64_t channels, scale, ratio;
  };
  for (const auto& [folder, channels, scale, ratio] : {Case{"vae_small", 4, 8, 6}, Case{"vae_other", 3, 4, 3}}) {
    const auto vae = load(folder);
    for (const int64_t latent_frames : {1, 2, 3}) {
      const at::Tensor frames = vae->decode(at::randn({1, channels, latent_frames, 2, 3}), false);
      EXPECT_EQ(vae->frames_of(latent_frames), ratio * (latent_frames - 1) + 1);
      EXPECT_EQ(frames.sizes(), (at::IntArrayRef{1, 3, vae->frames_of(latent_frames), 2 * scale, 3 * scale}));
    }
  }
}

TEST_F(MochiDecoding, ReportsEachLatentFrameOfEachTile) {
  const auto vae = load("vae_small");
  std::vector<std::pair<int64_t, int64_t>> seen;
  const auto progress = [&](int64_t done, int64_t total) { seen.emplace_back(done, total); };
  vae->decode(at::randn({1, 4, 5, 1, 1}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 5), Pair(2, 5), Pair(3, 5), Pair(4, 5), Pair(5, 5)));
  seen.clear();
  vae->decode(at::randn({1, 4, 1, 1, 33}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST_F(MochiDecoding, DeliversTheFramesOfEachLatentFrame) {
  const auto vae = load("vae_small");
  EXPECT_THAT(test::pieces_of(*vae, at::randn({1, 4, 5, 1, 1}), false), ElementsAre(1, 6, 6, 6, 6));
  EXPECT_THAT(test::pieces_of(*vae, at::randn({1, 4, 2, 1, 33}), true), ElementsAre(7));
}

TEST_F(MochiDecoding, RefusesLatentsWithOtherChannels) {
  test::expect_other_latents_refused(*load("vae_small"));
}

TEST_F(MochiDecoding, EstimatesItsPeakMemory) {
  for (const auto& [folder, channels] : {std::pair{"vae_small", 4}, {"vae_other", 3}}) {
    SCOPED_TRACE(folder);
    const auto vae = load(folder);
    for (const auto& [frames, height, width] : {std::tuple{1, 16, 16}, std::tuple{2, 16, 24}, std::tuple{5, 20, 16}})
      test::expect_peak_memory(*vae, at::randn({1, channels, frames, height, width}));
  }
}

TEST_F(MochiDecoding, GivesTheSameFramesForAnySplitOfTheVideo) {
  const Component component = component_of("vae_small");
  const MochiVaeConfig config = parse_mochi_vae_config(component.config, component.config_file);
  MochiDecoder decoder;
  decoder.weights(
      [](at::Tensor& tensor, const Parameter& parameter) {
        const int64_t inputs = at::zeros({}).expand(parameter.shape)[0].numel();
        tensor = at::randn(parameter.shape) / std::sqrt(static_cast<double>(inputs));
      },
      config);
  decoder.finish();
  const at::Tensor latents = at::randn({6, 2, 3, config.latent_channels});
  constexpr int64_t kAll = int64_t{1} << 40;
  size_t parts = 0;
  const auto decode = [&](const std::vector<int64_t>& cuts, int64_t elements) {
    ConvHistory history;
    std::vector<at::Tensor> made;
    for (const at::Tensor& chunk : latents.split_with_sizes(cuts))
      decode_frames(decoder, chunk, history, elements, [&](const at::Tensor& frames) { made.push_back(frames); });
    parts = made.size();
    return at::cat(made);
  };
  const at::Tensor whole = decode({6}, kAll);
  EXPECT_EQ(parts, 1U);
  EXPECT_TRUE(test::close_to(decode({1, 1, 1, 1, 1, 1}, kAll), whole, 1e-5));
  EXPECT_TRUE(test::close_to(decode({3, 1, 2}, kAll), whole, 1e-5));
  // A limit so low that every level computes one frame at a time.
  EXPECT_TRUE(test::close_to(decode({6}, 1), whole, 1e-5));
  EXPECT_EQ(parts, static_cast<size_t>(whole.size(0)));
  EXPECT_TRUE(test::close_to(decode({6}, 5 * whole[0].numel() / 3 * config.block_out_channels.front()), whole, 1e-5));
  EXPECT_GT(parts, 1U);
  EXPECT_LT(parts, static_cast<size_t>(whole.size(0)));
}

TEST_F(MochiDecoding, SplitsFramesIntoNearlyEqualParts) {
  EXPECT_EQ(frames_at_once(28, 100, 100 * 28), 28);
  EXPECT_EQ(frames_at_once(28, 100, 100 * 27), 14);
  EXPECT_EQ(frames_at_once(28, 100, 100 * 10), 10);  // 28 frames as 10, 10 and 8
  EXPECT_EQ(frames_at_once(21, 100, 100 * 10), 7);
  EXPECT_EQ(frames_at_once(3, 100, 1), 1);
}

TEST(MochiVaeConfiguration, RefusesInconsistentFields) {
  for (const auto& [field, value] : {std::pair{"decoder_block_out_channels", nlohmann::json({48, 64})},
                                     {"layers_per_block", nlohmann::json({1, 1})},
                                     {"temporal_expansions", nlohmann::json({1, 2})},
                                     {"spatial_expansions", nlohmann::json({128, 2, 2})},
                                     {"latents_mean", nlohmann::json({0.5})},
                                     {"act_fn", nlohmann::json("relu")}}) {
    nlohmann::json config = {{field, value}};
    EXPECT_TRUE(
        test::throws_error([&] { parse_mochi_vae_config(config, "vae/config.json"); }, {"vae/config.json", field}));
  }
}

}  // namespace
}  // namespace sparsereel::models
