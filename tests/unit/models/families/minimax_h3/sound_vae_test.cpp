// Tests MiniMax-H3's sound VAE: the sound that it returns, and the latents and configs that it refuses.
#include "models/vae/sound_vae.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "hilbert/error.h"
#include "models/families/minimax_h3/loaders.h"
#include "tests/support/minimax_h3_cases.h"
#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

using ::testing::HasSubstr;

TEST(MiniMaxH3SoundVae, DecodesEachChannelAlone) {
  const c10::InferenceMode inference;
  const Component component = test::vae_component(test::minimax_h3(), "sound");
  const auto vae = load_minimax_h3_sound_vae(component, at::kCPU);
  EXPECT_EQ(vae->samples_a_latent(), 30);
  EXPECT_EQ(vae->sampling_rate(), 16000);
  const at::Tensor left = at::randn({1, 7, 5}), right = at::randn({1, 7, 5});
  const at::Tensor both = vae->decode(at::cat({left, right}, 1));
  EXPECT_EQ(both.sizes(), (at::IntArrayRef{2, 210}));
  const at::Tensor changed = vae->decode(at::cat({left, right + 1}, 1).to(at::kHalf));
  EXPECT_LT((changed[0] - both[0]).abs().max().item<double>(), 1e-2);
  EXPECT_GT((changed[1] - both[1]).abs().max().item<double>(), 1e-1);
  EXPECT_EQ(changed.scalar_type(), at::kFloat);
  for (const at::Tensor& wrong : {at::zeros({1, 7, 5}), at::zeros({1, 8, 4}), at::zeros({2, 8, 5}), at::zeros({8, 5})})
    EXPECT_THROW(vae->decode(wrong), Error);
}

test::ZeroComponent published_sound_vae() {
  return {"AutoencoderKLMiniMaxH3Audio", "none",
          read_json(SPARSEREEL_TEST_DATA "/minimax_h3/sound_names.json").at("published")};
}

void load_published_sound(const Component& component) {
  load_minimax_h3_sound_vae(component, at::kMeta);
}

TEST(MiniMaxH3SoundVae, TakesThePublishedNamesAndShapes) {
  test::ZeroComponent zeros = published_sound_vae();
  EXPECT_EQ(test::load_complaint(zeros.component, load_published_sound), "");
  zeros.component.tensors.erase("decoder.resblocks.20.convs2.2.weight_g");
  EXPECT_THAT(test::load_complaint(zeros.component, load_published_sound),
              HasSubstr("decoder.resblocks.20.convs2.2.weight_g"));
}

TEST(MiniMaxH3SoundVae, RefusesUnsupportedConfigs) {
  using nlohmann::json;
  for (const auto& [field, value] : {std::pair{"latent_dim", json(0)},
                                     {"latent_channels", json("many")},
                                     {"decoder_dim", json(1000)},
                                     {"decoder_rates", json::array()},
                                     {"decoder_rates", json({5, 5, 2, 2, 2, 2, 65})},
                                     {"decoder_kernel_sizes", json({9, 9})},
                                     {"decoder_kernel_sizes", json({9, 9, 4, 4, 4, 4, 5})},
                                     {"encoder_rates", json({2, 4, 4, 5})},
                                     {"resblock_kernel_sizes", json::array()},
                                     {"resblock_kernel_sizes", json({3, 7, 10})},
                                     {"resblock_dilation_sizes", json({{1, 3, 5}})},
                                     {"resblock_dilation_sizes", json({{1, 3, 5}, {1, 0, 5}, {1, 3, 5}})},
                                     {"resblock_dilation_sizes", json({1, 3, 5})},
                                     {"sampling_rate", json(0)},
                                     {"latents_mean", json({1, 2})},
                                     {"latents_std", json(std::vector<int>(32, 0))}}) {
    test::ZeroComponent zeros = published_sound_vae();
    zeros.component.config[field] = value;
    const std::string cause = test::load_complaint(zeros.component, load_published_sound);
    EXPECT_THAT(cause, HasSubstr(field));
    EXPECT_THAT(cause, HasSubstr("zeros/config.json"));
  }
}

TEST(MiniMaxH3SoundVae, RefusesRatesWhoseProductOverflows) {
  test::ZeroComponent zeros = published_sound_vae();
  const std::vector<int64_t> rates(16, 64);  // 2^96 samples a latent
  zeros.component.config.update(
      {{"decoder_rates", rates}, {"decoder_kernel_sizes", rates}, {"encoder_rates", rates}, {"decoder_dim", 65536}});
  EXPECT_THAT(test::load_complaint(zeros.component, load_published_sound), HasSubstr("decoder_rates multiplies to"));
}

}  // namespace
}  // namespace sparsereel::models
