// Compares MiniMax-H3's VAE and autoencoder of sound with diffusers on small random models. The data come from
// make_minimax_h3_vae.py and make_minimax_h3_sound.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "models/families/minimax_h3/loaders.h"
#include "tests/support/minimax_h3_cases.h"

namespace sparsereel::models {
namespace {

using test::close_to;

class MiniMaxH3VaeParity : public ::testing::Test {
 protected:
  at::Tensor frames_of(const std::string& name) const {
    return vae_->decode(golden_[name + "/latents"].to(at::kFloat), /*tiled=*/false);
  }

  c10::InferenceMode inference_;
  test::Golden golden_{"minimax_h3/vae_golden"};
  Component component_ = test::vae_component(test::minimax_h3(), "vae");
  std::unique_ptr<Vae> vae_ = load_minimax_h3_vae(component_, at::kCPU, at::kFloat, VaeParts::both);
};

TEST_F(MiniMaxH3VaeParity, DecodesAsDiffusersDoes) {
  const at::Tensor some = frames_of("one_tile").slice(2, 0, c10::nullopt, 3);
  EXPECT_TRUE(close_to(some, golden_["one_tile/frames"], 1e-5));
}

// The golden frames are rounded to fp16. One bit of theirs is 5e-4 between 0.5 and 1.
TEST_F(MiniMaxH3VaeParity, DecodesInTilesAndClipsAsDiffusersDoes) {
  constexpr int64_t kStep = 13;  // of the golden pixels
  for (const char* name : {"one_row", "tiles"}) {
    const at::Tensor frames = frames_of(name);
    const at::Tensor some = frames.slice(3, 0, c10::nullopt, kStep).slice(4, 0, c10::nullopt, kStep);
    EXPECT_TRUE(close_to(some, golden_[std::string(name) + "/frames"], 3e-4)) << name;
  }
}

TEST_F(MiniMaxH3VaeParity, EncodesPicturesAsDiffusersDoes) {
  for (const auto& [name, height, width] : {std::tuple("picture", 48, 32), {"picture_in_tiles", 272, 448}}) {
    const LatentDistribution latents = vae_->encode(test::frames_to_encode({1, 3, 1, height, width}), /*tiled=*/false);
    EXPECT_TRUE(close_to(latents.mean, golden_[std::string(name) + "/mean"], 1e-5)) << name;
    EXPECT_TRUE(close_to(latents.deviation, golden_[std::string(name) + "/deviation"], 1e-5)) << name;
  }
}

/// The reference rounds latents to fp16. The last bit of a sum may move a few of them to the next number.
TEST_F(MiniMaxH3VaeParity, DrawsKeyframesAsDiffusersDoes) {
  for (const auto& [name, height, width] : {std::tuple("picture", 48, 32), {"picture_in_tiles", 272, 448}}) {
    const at::Tensor drawn = vae_->encode_keyframe(test::frames_to_encode({1, 3, 1, height, width})),
                     expected = golden_[std::string(name) + "/drawn"];
    EXPECT_TRUE(close_to(drawn, expected, 1e-3)) << name;
    EXPECT_LT((drawn - expected).abs().gt(1e-5).to(at::kFloat).mean().item<float>(), 0.01) << name;
    EXPECT_TRUE(drawn.equal(vae_->encode_keyframe(test::frames_to_encode({1, 3, 1, height, width}))))
        << "each picture has its own generator";
  }
}

TEST(MiniMaxH3SoundParity, DecodesAsDiffusersDoes) {
  const c10::InferenceMode inference;
  const test::Golden golden("minimax_h3/sound_golden");
  const Component component = test::vae_component(test::minimax_h3(), "sound");
  const auto vae = load_minimax_h3_sound_vae(component, at::kCPU);
  for (const std::string length : {"1", "23"})
    EXPECT_TRUE(close_to(vae->decode(golden[length + "/latents"]), golden[length + "/wave"], 1e-5)) << length;
}

}  // namespace
}  // namespace sparsereel::models
