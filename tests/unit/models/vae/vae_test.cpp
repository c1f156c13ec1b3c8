// Tests properties of CogVideoX's VAE on which the pipeline relies: frame counts, scales, progress, memory, errors.
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

TEST_F(VaeTest, ProducesTheAnnouncedNumberOfFrames) {
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

TEST_F(VaeTest, DeliversEachBatchAfterDecodingIt) {
  EXPECT_THAT(test::pieces_of(*vae, at::randn({1, 4, 5, 2, 2}), false), ElementsAre(9, 8));
  EXPECT_THAT(test::pieces_of(*vae, at::randn({1, 4, 5, 2, 6}), true), ElementsAre(8, 8, 1));
}

TEST_F(VaeTest, DividesLatentsByTheScalingFactor) {
  const at::Tensor latents = at::randn({1, 4, 2, 2, 6});
  component.config["scaling_factor"] = 0.5;
  const auto scaled = load_cogvideox_vae(component, at::kCPU, at::kFloat);
  for (const bool tiled : {false, true})
    EXPECT_TRUE(scaled->decode(latents, tiled).equal(vae->decode(latents * 2, tiled))) << tiled;
}

TEST_F(VaeTest, DoesNotTileIfOneTileIsEnough) {
  const at::Tensor latents = at::randn({1, 4, 2, 6, 5});
  EXPECT_TRUE(vae->decode(latents, true).equal(vae->decode(latents, false)));
}

TEST_F(VaeTest, RefusesToEncodeWithoutAnEncoder) {
  EXPECT_FALSE(vae->encodes());
  EXPECT_TRUE(test::throws_error([&] { vae->encode(at::zeros({1, 3, 1, 16, 16}), false); }, {"cannot encode"}));
  Component mochi = component;
  mochi.class_name = "AutoencoderKLMochi";
  mochi.random_seed = 0;
  mochi.config = {{"_class_name", mochi.class_name}};
  EXPECT_TRUE(test::throws_error([&] { load_vae(mochi, at::kMeta, at::kFloat, VaeParts::encoder); },
                                 {"the encoder of AutoencoderKLMochi is not supported"}));
}

TEST_F(VaeTest, RefusesLatentsWithOtherChannels) {
  test::expect_other_latents_refused(*vae);
}

TEST_F(VaeTest, EstimatesItsPeakMemory) {
  for (const auto& [frames, height, width] : {std::tuple{1, 16, 16}, std::tuple{2, 16, 24}, std::tuple{5, 20, 16}})
    test::expect_peak_memory(*vae, at::randn({1, 4, frames, height, width}));
}

class EncoderTest : public VaeTest {
 protected:
  std::unique_ptr<Vae> load(VaeParts parts = VaeParts::encoder) {
    return load_cogvideox_vae(component, at::kCPU, at::kFloat, parts);
  }
};

TEST_F(EncoderTest, EncodesTheFirstFrameAndGroupsOfFour) {
  const auto encoder = load();
  for (const auto& [frames, latents] : {std::pair{1, 1}, {5, 2}, {9, 3}, {13, 4}, {17, 5}, {21, 6}}) {
    const auto [mean, deviation] = encoder->encode(at::rand({1, 3, frames, 16, 24}), false);
    EXPECT_EQ(mean.sizes(), (at::IntArrayRef{1, 4, latents, 2, 3}));
    EXPECT_EQ(deviation.sizes(), mean.sizes());
    EXPECT_GT(deviation.min().item<float>(), 0);
  }
}

TEST_F(EncoderTest, AppliesOrInvertsTheScalingFactor) {
  const at::Tensor frames = at::rand({1, 3, 1, 56, 16});
  const auto [mean, deviation] = load()->encode(frames, true);
  component.config["scaling_factor"] = 0.5;
  const auto smaller = load()->encode(frames, true);
  EXPECT_TRUE(smaller.mean.equal(mean * 0.5));
  EXPECT_TRUE(smaller.deviation.equal(deviation * 0.5));
  component.config["invert_scale_latents"] = true;
  const auto larger = load()->encode(frames, true);
  EXPECT_TRUE(larger.mean.equal(mean * 2));
  EXPECT_TRUE(larger.deviation.equal(deviation * 2));
}

TEST_F(EncoderTest, ReportsEachBatchOfEachTile) {
  const auto encoder = load();
  std::vector<std::pair<int64_t, int64_t>> seen;
  const auto progress = [&](int64_t done, int64_t total) { seen.emplace_back(done, total); };
  encoder->encode(at::rand({1, 3, 17, 16, 16}), false, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 2), Pair(2, 2)));
  seen.clear();
  encoder->encode(at::rand({1, 3, 1, 16, 48}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST_F(EncoderTest, LoadsAloneOrWithTheDecoder) {
  const at::Tensor frames = at::rand({1, 3, 5, 16, 16});
  const auto alone = load(), both = load(VaeParts::both);
  const LatentDistribution latents = alone->encode(frames, false);
  EXPECT_TRUE(both->encode(frames, false).mean.equal(latents.mean));
  EXPECT_TRUE(both->decode(latents.mean, false).equal(vae->decode(latents.mean, false)));
  EXPECT_TRUE(test::throws_error([&] { alone->decode(latents.mean, false); }, {"only the encoder"}));
}

TEST_F(EncoderTest, NamesMissingWeights) {
  std::erase_if(component.tensors, [](const auto& tensor) { return tensor.first.starts_with("encoder."); });
  load_cogvideox_vae(component, at::kCPU, at::kFloat);
  EXPECT_TRUE(test::throws_error([&] { load(); }, {"missing", "encoder.conv_in.conv.weight"}));
}

TEST_F(EncoderTest, NeedsNoDecoderWeights) {
  std::erase_if(component.tensors, [](const auto& tensor) { return tensor.first.starts_with("decoder."); });
  EXPECT_TRUE(load()->encodes());
}

TEST_F(EncoderTest, AcceptsRandomWeights) {
  const Component random = test::with_random_weights(component, 3);
  const auto encoder = load_cogvideox_vae(random, at::kCPU, at::kFloat, VaeParts::encoder);
  const LatentDistribution latents = encoder->encode(at::rand({1, 3, 5, 32, 32}) * 2 - 1, false);
  EXPECT_TRUE(at::isfinite(latents.mean).all().item<bool>());
  EXPECT_GT(latents.mean.std().item<float>(), 0.1F);
}

TEST_F(EncoderTest, RefusesConfigsOfOtherEncoders) {
  const auto refused = [&](const char* field, const nlohmann::json& value) {
    Component other = component;
    other.config[field] = value;
    EXPECT_TRUE(
        test::throws_error([&] { load_cogvideox_vae(other, at::kMeta, at::kFloat, VaeParts::encoder); }, {field}));
  };
  refused("in_channels", 4);
  refused("use_quant_conv", true);
  refused("down_block_types", std::vector<std::string>(4, "DownEncoderBlock2D"));
  refused("norm_eps", -1);
}

TEST_F(EncoderTest, RefusesFramesOfOtherShapes) {
  test::expect_other_frames_refused(*load());
}

TEST_F(EncoderTest, EstimatesItsPeakMemory) {
  const auto encoder = load();
  for (const auto& [frames, height, width] :
       {std::tuple{1, 128, 128}, std::tuple{5, 128, 192}, std::tuple{17, 96, 128}, std::tuple{29, 64, 96}})
    test::expect_peak_memory_of_encoding(*encoder, at::rand({1, 3, frames, height, width}));
}

}  // namespace
}  // namespace sparsereel::models
