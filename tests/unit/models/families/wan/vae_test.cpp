// Tests properties of Wan's VAE on which the pipeline relies: frame counts, progress, memory, errors.
#include "models/families/wan/loaders.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "models/families/wan/decoder.h"
#include "models/families/wan/encoder.h"
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
    return test::vae_component({.name = "", .folder = "wan/", .transformer_class = "", .vae_class = "AutoencoderKLWan"},
                               folder);
  }
  static std::unique_ptr<Vae> load(const std::string& folder, VaeParts parts = VaeParts::decoder,
                                   at::ScalarType dtype = at::kFloat) {
    const Component component = component_of(folder);
    return load_wan_vae(component, at::kCPU, dtype, parts);
  }

  static void draw(at::Tensor& tensor, const Parameter& parameter) {
    const int64_t inputs = at::zeros({}).expand(parameter.shape)[0].numel();
    tensor = at::randn(parameter.shape) / std::sqrt(static_cast<double>(inputs));
  }

  const c10::InferenceMode inference;
};

TEST_F(WanVae, ProducesTheAnnouncedNumberOfFrames) {
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

TEST_F(WanVae, DeliversTheFramesOfEachLatent) {
  for (const auto& [folder, channels] : {std::pair{"vae_plain", 4}, {"vae_residual", 5}}) {
    EXPECT_THAT(test::pieces_of(*load(folder), at::randn({1, channels, 3, 1, 2}), false), ElementsAre(1, 4, 4));
    EXPECT_THAT(test::pieces_of(*load(folder), at::randn({1, channels, 3, 1, 33}), true), ElementsAre(8, 1));
  }
}

TEST_F(WanVae, DoesNotTileIfOneTileIsEnough) {
  const auto vae = load("vae_plain");
  const at::Tensor latents = at::randn({1, 4, 1, 2, 32});
  EXPECT_TRUE(vae->decode(latents, true).equal(vae->decode(latents, false)));
}

TEST_F(WanVae, RefusesLatentsWithOtherChannels) {
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

TEST_F(WanVae, GivesTheSameFramesForAnySplitAfterTheFirstLatent) {
  for (const std::string folder : {"vae_plain", "vae_residual"}) {
    SCOPED_TRACE(folder);
    const Component component = component_of(folder);
    const WanVaeConfig config = parse_wan_vae_config(component.config, component.config_file);
    WanDecoder decoder;
    decoder.weights(draw, config);
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

struct WanEncoderCase {
  std::string folder;
  int64_t channels, scale, ratio;
};

class WanVaeEncoder : public WanVae {
 protected:
  static std::unique_ptr<Vae> load(const std::string& folder) { return WanVae::load(folder, VaeParts::encoder); }

  static WanVaeConfig encoder_config(const std::string& folder) {
    const Component component = component_of(folder);
    return parse_wan_vae_config(component.config, component.config_file, /*with_encoder=*/true);
  }
  static WanEncoder drawn_encoder(const WanVaeConfig& config) {
    WanEncoder encoder;
    encoder.weights(draw, config);
    encoder.finish();
    return encoder;
  }

  static inline const std::vector<WanEncoderCase> cases = {{"vae_plain", 4, 8, 4},
                                                           {"vae_residual", 5, 16, 4},
                                                           {"vae_plain_other", 3, 4, 2},
                                                           {"vae_residual_other", 3, 4, 2}};
};

TEST_F(WanVaeEncoder, EncodesTheFirstFrameAndGroupsOfLaterFrames) {
  for (const auto& [folder, channels, scale, ratio] : cases) {
    const auto vae = load(folder);
    for (const int64_t latent_frames : {1, 2, 3}) {
      const LatentDistribution latents =
          vae->encode(at::rand({1, 3, vae->frames_of(latent_frames), 2 * scale, 3 * scale}), false);
      EXPECT_EQ(latents.mean.sizes(), (at::IntArrayRef{1, channels, latent_frames, 2, 3}));
      EXPECT_FALSE(latents.deviation.defined());
    }
  }
}

TEST_F(WanVaeEncoder, EncodesTheFirstFrameLikeASinglePicture) {
  for (const auto& [folder, channels, scale, ratio] : cases) {
    SCOPED_TRACE(folder);
    const auto vae = load(folder);
    const bool tiled = folder == "vae_plain";
    const at::Tensor clip = at::rand({1, 3, 4 * ratio + 1, 3 * scale, (tiled ? 34 : 5) * scale}) * 2 - 1;
    const at::Tensor latents = vae->encode(clip, tiled).mean;
    EXPECT_TRUE(latents.narrow(2, 0, 1).equal(vae->encode(clip.narrow(2, 0, 1), tiled).mean));
    EXPECT_FALSE(latents.select(2, 0).equal(latents.select(2, 1)));
  }
}

TEST_F(WanVaeEncoder, GivesTheSameLatentsForAnySplitAfterTheFirstFrame) {
  for (const std::string folder : {"vae_plain", "vae_residual", "vae_plain_other", "vae_residual_other"}) {
    SCOPED_TRACE(folder);
    const WanVaeConfig config = encoder_config(folder);
    const WanEncoder encoder = drawn_encoder(config);
    const int64_t step = config.frames_a_latent();
    const at::Tensor frames = at::randn({1 + 5 * step, 16, 24, config.in_channels});
    const auto encode = [&](const std::vector<int64_t>& cuts) {
      WanVideoEncoder video(encoder);
      std::vector<at::Tensor> parts = {video.encode(frames.narrow(0, 0, 1), /*ends=*/false)};
      const at::Tensor rest = frames.narrow(0, 1, 5 * step);
      int64_t start = 0;
      for (const int64_t latents : cuts) {
        parts.push_back(video.encode(rest.narrow(0, step * start, step * latents), /*ends=*/start + latents == 5));
        start += latents;
      }
      return at::cat(parts);
    };
    const at::Tensor one_by_one = encode({1, 1, 1, 1, 1});
    EXPECT_TRUE(test::close_to(encode({5}), one_by_one, 1e-5));
    EXPECT_TRUE(test::close_to(encode({2, 3}), one_by_one, 1e-5));
  }
}

TEST_F(WanVaeEncoder, SkipsLayersWhoseInputRepeatsAndGivesTheSameBits) {
  for (const std::string folder : {"vae_plain", "vae_residual", "vae_plain_other", "vae_residual_other"}) {
    SCOPED_TRACE(folder);
    const WanVaeConfig config = encoder_config(folder);
    const WanEncoder encoder = drawn_encoder(config);
    const int64_t step = config.frames_a_latent(), latents = 40;
    // Only the first and the last frame are pictures, as in image to video. The value 1e-30 in every second group of
    // frames makes consecutive groups differ. It changes no result, because it vanishes when a bias is added.
    at::Tensor frames = at::zeros({1 + latents * step, 16, 24, config.in_channels});
    frames[0] = at::randn_like(frames[0]);
    frames[latents * step] = at::randn_like(frames[0]);
    at::Tensor never_repeats = frames.clone();
    for (int64_t latent = 1; latent < latents; latent += 2) never_repeats[1 + latent * step] = 1e-30;
    size_t most_settled = 0;
    const auto encode = [&](const at::Tensor& all) {
      WanVideoEncoder video(encoder);
      most_settled = 0;
      std::vector<at::Tensor> parts = {video.encode(all.narrow(0, 0, 1), /*ends=*/false)};
      for (int64_t latent = 0; latent < latents; ++latent) {
        parts.push_back(video.encode(all.narrow(0, 1 + latent * step, step), /*ends=*/latent + 1 == latents));
        most_settled = std::max(most_settled, video.settled_layers());
      }
      return at::cat(parts);
    };
    const at::Tensor expected = encode(never_repeats);
    EXPECT_EQ(most_settled, 0);
    EXPECT_TRUE(encode(frames).equal(expected));
    // 3 layers are conv_in, the middle layers and conv_out. In a residual encoder, each level counts as one layer. In
    // others, each block and each downsampler does.
    size_t layers = 3 + (config.is_residual ? encoder.down.size() : 0);
    for (const WanDownBlock& level : encoder.down)
      if (!config.is_residual) layers += level.blocks.size() + (level.downsampler ? 1 : 0);
    EXPECT_EQ(most_settled, layers) << "all layers settle while empty frames come";
    EXPECT_FALSE(expected[latents].equal(expected[latents - 1]));
  }
}

TEST_F(WanVaeEncoder, ReportsEachLatentOfEachTile) {
  const auto vae = load("vae_residual");
  std::vector<std::pair<int64_t, int64_t>> seen;
  const auto progress = [&](int64_t done, int64_t total) { seen.emplace_back(done, total); };
  vae->encode(at::rand({1, 3, 9, 16, 16}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 3), Pair(2, 3), Pair(3, 3)));
  seen.clear();
  vae->encode(at::rand({1, 3, 1, 16, 25 * 16}), true, progress);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST_F(WanVaeEncoder, TilesOnlyWhereTheReferenceDoes) {
  const auto vae = load("vae_plain");
  for (const int64_t width : {25, 32}) {  // widths in latents; tiles are 32 wide and begin every 24
    const at::Tensor frames = at::rand({1, 3, 1, 16, width * 8});
    EXPECT_TRUE(vae->encode(frames, true).mean.equal(vae->encode(frames, false).mean));
  }
}

TEST_F(WanVaeEncoder, LoadsAloneOrWithTheDecoder) {
  const at::Tensor frames = at::rand({1, 3, 5, 16, 16});
  const auto alone = load("vae_plain"), both = WanVae::load("vae_plain", VaeParts::both);
  const at::Tensor latents = alone->encode(frames, false).mean;
  EXPECT_TRUE(both->encode(frames, false).mean.equal(latents));
  EXPECT_TRUE(both->decode(latents, false).equal(WanVae::load("vae_plain")->decode(latents, false)));
  EXPECT_TRUE(test::throws_error([&] { alone->decode(latents, false); }, {"only the encoder"}));
}

TEST_F(WanVaeEncoder, NamesMissingWeights) {
  Component component = component_of("vae_residual");
  component.tensors.erase("encoder.down_blocks.1.downsampler.time_conv.weight");
  component.tensors.erase("quant_conv.bias");
  load_wan_vae(component, at::kCPU, at::kFloat);
  EXPECT_TRUE(
      test::throws_error([&] { load_wan_vae(component, at::kCPU, at::kFloat, VaeParts::encoder); },
                         {"2 missing", "encoder.down_blocks.1.downsampler.time_conv.weight", "quant_conv.bias"}));
}

TEST_F(WanVaeEncoder, AcceptsRandomWeights) {
  for (const auto& [folder, channels, scale, ratio] : cases) {
    SCOPED_TRACE(folder);
    const Component random = test::with_random_weights(component_of(folder), 3);
    const auto vae = load_wan_vae(random, at::kCPU, at::kFloat, VaeParts::encoder);
    const at::Tensor latents = vae->encode(at::rand({1, 3, ratio + 1, 2 * scale, 2 * scale}) * 2 - 1, false).mean;
    EXPECT_TRUE(at::isfinite(latents).all().item<bool>());
    EXPECT_GT(latents.std().item<float>(), 0.1F);
  }
}

TEST_F(WanVaeEncoder, RefusesConfigsOfOtherEncoders) {
  const auto refused = [&](const char* field, const nlohmann::json& value, const char* named) {
    Component other = component_of("vae_residual");
    other.config[field] = value;
    EXPECT_TRUE(test::throws_error([&] { load_wan_vae(other, at::kMeta, at::kFloat, VaeParts::encoder); }, {named}));
  };
  refused("attn_scales", {0.25}, "attn_scales");
  refused("in_channels", 3, "in_channels");
  refused("base_dim", 0, "base_dim");
  refused("dim_mult", {3, 1, 5, 7}, "dim_mult");
}

TEST_F(WanVaeEncoder, RefusesFramesOfOtherShapes) {
  test::expect_other_frames_refused(*load("vae_plain"));
}

TEST_F(WanVaeEncoder, EstimatesItsPeakMemory) {
  for (const auto& [folder, channels, scale, ratio] : cases) {
    SCOPED_TRACE(folder);
    const auto vae = load(folder);
    for (const auto& [frames, height, width] : {std::tuple{1, 16, 16}, std::tuple{2, 16, 24}, std::tuple{5, 20, 16}})
      test::expect_peak_memory_of_encoding(*vae,
                                           at::rand({1, 3, vae->frames_of(frames), height * scale, width * scale}));
  }
}

TEST_F(WanVaeEncoder, EstimatesTheMemoryOfUnfusedNorms) {
  const auto vae = WanVae::load("vae_plain", VaeParts::encoder, at::kBFloat16);
  test::expect_peak_memory_of_encoding(*vae, at::rand({1, 3, 5, 128, 192}).to(at::kBFloat16));
}

}  // namespace
}  // namespace sparsereel::models
