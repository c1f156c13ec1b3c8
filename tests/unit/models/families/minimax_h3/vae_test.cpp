// Tests properties of MiniMax-H3's VAE on which the pipeline relies: numbers of frames, progress, and refusals.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/families/minimax_h3/loaders.h"
#include "tests/support/decoder_checks.h"
#include "tests/support/minimax_h3_cases.h"
#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class MiniMaxH3VaeTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Vae> load(VaeParts parts) {
    const Component component = test::vae_component(test::minimax_h3(), "vae");
    return load_minimax_h3_vae(component, at::kCPU, at::kFloat, parts);
  }
  static std::string complaint(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    return "";
  }

  const c10::InferenceMode inference_;
  const std::unique_ptr<Vae> vae_ = load(VaeParts::both);
};

TEST_F(MiniMaxH3VaeTest, HandsOutClipsOfSeventeenFramesAndAnEnd) {
  for (const int64_t clips : {1, 3}) {
    std::vector<int64_t> counts;
    vae_->decode(at::randn({1, 6, 5 * clips + 2, 1, 2}), {},
                 [&](const at::Tensor& frames) {
                   EXPECT_EQ(frames.sizes(), (at::IntArrayRef{1, 3, frames.size(2), 16, 32}));
                   EXPECT_LE(frames.abs().max().item<double>(), 1);
                   counts.push_back(frames.size(2));
                 },
                 {});
    std::vector<int64_t> wanted(static_cast<size_t>(clips), 17);
    wanted.push_back(5);
    EXPECT_EQ(counts, wanted);
    EXPECT_EQ(vae_->frames_of(5 * clips + 2), 17 * clips + 5);
  }
}

TEST_F(MiniMaxH3VaeTest, ReportsEachRowOfTilesOfEachClip) {
  std::vector<std::pair<int64_t, int64_t>> seen;
  vae_->decode(at::randn({1, 6, 12, 17, 1}), /*tiled=*/false,
               [&](int64_t done, int64_t total) { seen.emplace_back(done, total); });
  EXPECT_THAT(seen, ElementsAre(Pair(1, 4), Pair(2, 4), Pair(3, 4), Pair(4, 4)));
}

TEST_F(MiniMaxH3VaeTest, DecodesInTheDtypeOfTheLatents) {
  const at::Tensor latents = at::randn({1, 6, 7, 1, 1});
  const at::Tensor frames = vae_->decode(latents.to(at::kHalf), false);
  EXPECT_EQ(frames.scalar_type(), at::kHalf);
  EXPECT_LT((frames.to(at::kFloat) - vae_->decode(latents, false)).abs().max().item<double>(), 5e-3);
}

TEST_F(MiniMaxH3VaeTest, RefusesWhatItCannotDecodeOrEncode) {
  for (const int64_t frames : {1, 2, 6, 8})
    EXPECT_THAT(complaint([&] { vae_->decode(at::zeros({1, 6, frames, 1, 1}), false); }), HasSubstr("latent frames"));
  EXPECT_THAT(complaint([&] { vae_->decode(at::zeros({1, 5, 7, 1, 1}), false); }), HasSubstr("[1, 6, frames"));
  EXPECT_THAT(complaint([&] { vae_->encode(at::zeros({1, 3, 2, 16, 16}), false); }), HasSubstr("single pictures"));
  EXPECT_THAT(complaint([&] { vae_->encode(at::zeros({1, 3, 1, 17, 16}), false); }), HasSubstr("multiples of 16"));
  EXPECT_THAT(complaint([&] { vae_->encode(at::zeros({1, 3, 1, 16, 32}), false); }), HasSubstr("at least 32"));
  const auto decoder = load(VaeParts::decoder), encoder = load(VaeParts::encoder);
  EXPECT_FALSE(decoder->encodes());
  EXPECT_NE(complaint([&] { decoder->encode(at::zeros({1, 3, 1, 16, 16}), false); }), "");
  EXPECT_NE(complaint([&] { encoder->decode(at::zeros({1, 6, 7, 1, 1}), false); }), "");
}

TEST_F(MiniMaxH3VaeTest, CountsTheWeightsOfTheLoadedParts) {
  const auto decoder = load(VaeParts::decoder), encoder = load(VaeParts::encoder);
  EXPECT_GT(decoder->weights().count, 0U);
  EXPECT_EQ(decoder->weights().bytes, 4 * decoder->weights().count) << "a CPU multiplies in fp32";
  EXPECT_EQ(decoder->weights().count + encoder->weights().count, load(VaeParts::both)->weights().count);
}

TEST_F(MiniMaxH3VaeTest, NeedsMoreMemoryForWiderFrames) {
  EXPECT_GT(vae_->untiled_bytes(7, 48, 84), vae_->untiled_bytes(7, 48, 60));
  EXPECT_EQ(vae_->untiled_bytes(7, 48, 84), vae_->untiled_bytes(72, 48, 84)) << "clips are decoded in turn";
  EXPECT_GT(vae_->untiled_encode_bytes(1, 768, 1344), vae_->untiled_encode_bytes(1, 768, 256));
}

/// Returns a VAE with random weights whose decoder has `heads` attention heads of 64 channels.
std::unique_ptr<Vae> random_vae(int64_t heads, VaeParts parts) {
  Component component = test::vae_component(test::minimax_h3(), "vae");
  component.files.clear();
  component.tensors.clear();
  component.random_seed = 0;
  component.config["decoder_num_attention_heads"] = heads;
  component.config["decoder_attention_head_dim"] = 64;
  component.config["decoder_ffn_mult"] = 4;
  component.config["decoder_num_layers"] = 1;
  component.config["block_out_channels"] = {16, 8, 8, 8, 8};
  return load_minimax_h3_vae(component, at::kCPU, at::kFloat, parts);
}

TEST_F(MiniMaxH3VaeTest, EstimatesTheMemoryOfDecoding) {
  const std::vector<std::pair<int64_t, std::vector<int64_t>>> cases = {
      {16, {1, 6, 7, 8, 8}},     // one block of layers takes the most memory
      {8, {1, 6, 7, 16, 16}},    // one tile
      {1, {1, 6, 12, 20, 24}}};  // tiles above and beside each other, and two clips
  for (const auto& [heads, shape] : cases) {
    const auto vae = random_vae(heads, VaeParts::decoder);
    const at::Tensor latents = at::randn(shape);
    test::expect_peak_memory([&] { vae->decode(latents, {}, [](const at::Tensor&) {}, {}); },
                             vae->untiled_bytes(shape[2], shape[3], shape[4]), shape);
  }
}

TEST_F(MiniMaxH3VaeTest, EstimatesTheMemoryOfEncoding) {
  const auto vae = random_vae(1, VaeParts::encoder);
  for (const int64_t width : {256, 384}) {
    const at::Tensor frame = at::rand({1, 3, 1, 320, width});
    test::expect_peak_memory([&] { vae->encode_keyframe(frame); }, vae->untiled_encode_bytes(1, 320, width),
                             frame.sizes());
  }
}

test::ZeroComponent published_vae() {
  return {"AutoencoderKLMiniMaxH3", "none",
          read_json(SPARSEREEL_TEST_DATA "/minimax_h3/vae_names.json").at("published")};
}

void load_published_vae(const Component& component) {
  load_minimax_h3_vae(component, at::kMeta, at::kBFloat16, VaeParts::both);
}

TEST(MiniMaxH3VaeLoading, TakesThePublishedNamesAndShapes) {
  test::ZeroComponent zeros = published_vae();
  EXPECT_EQ(test::load_complaint(zeros.component, load_published_vae), "");
  zeros.component.tensors.erase("decoder.transformer_blocks.35.scale2");
  EXPECT_NE(test::load_complaint(zeros.component, load_published_vae).find("decoder.transformer_blocks.35.scale2"),
            std::string::npos);
}

TEST(MiniMaxH3VaeLoading, RefusesUnsupportedConfigs) {
  using nlohmann::json;
  for (const auto& [field, value] : {std::pair{"in_channels", json(4)},
                                     {"out_channels", json(1)},
                                     {"latent_channels", json(0)},
                                     {"block_out_channels", json::array()},
                                     {"block_out_channels", json({128, 256, 256, 512, 512, 1000})},
                                     {"layers_per_block", json(0)},
                                     {"spatial_downsample_factors", json({2, 2})},
                                     {"spatial_downsample_factors", json({4, 2, 2, 1, 1, 1})},
                                     {"temporal_downsample_factors", json({1, 2, 2, 1, 1, 2})},
                                     {"norm_num_groups", json(0)},
                                     {"norm_eps", json(-1)},
                                     {"spatial_padding_mode", json("zeros")},
                                     {"decoder_num_layers", json(0)},
                                     {"decoder_num_attention_heads", json("many")},
                                     {"decoder_attention_head_dim", json(15)},
                                     {"decoder_num_register_tokens", json(-1)},
                                     {"decoder_ffn_mult", json(0)},
                                     {"decoder_rope_theta", json(0)},
                                     {"decoder_rope_dim_ratio", json(0.7)},
                                     {"decoder_norm_eps", json(2)},
                                     {"clip_length", json(0)},
                                     {"token_drop", json(5)},
                                     {"latents_mean", json({1, 2})},
                                     {"latents_std", json(std::vector<int>(24, 0))}}) {
    test::ZeroComponent zeros = published_vae();
    zeros.component.config[field] = value;
    const std::string cause = test::load_complaint(zeros.component, load_published_vae);
    EXPECT_NE(cause.find(field), std::string::npos) << field << ": " << cause;
    EXPECT_NE(cause.find("zeros/config.json"), std::string::npos) << cause;
  }
}

}  // namespace
}  // namespace sparsereel::models
