// Tests the ModelSpec of a Wan checkpoint, which is made without weights, and the checkpoints that are refused.
#include "models/families/wan/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::throws_error;
using ::testing::ElementsAre;

const fs::path kData = SPARSEREEL_TEST_DATA;

class WanFamily : public ::testing::Test {
 protected:
  void take(const char* pipeline, const char* data = "wan") {
    fs::copy(kData / data / pipeline, folder_ / "model", fs::copy_options::recursive);
  }
  void edit(const std::string& file, const std::function<void(json&)>& change) {
    json content = read_json(folder_ / "model" / file);
    change(content);
    std::ofstream(folder_ / "model" / file) << content;
  }
  ModelSpec spec() const { return describe(Checkpoint::open(folder_ / "model")); }
  testing::AssertionResult refused(const std::vector<std::string>& parts) const {
    return throws_error([this] { spec(); }, parts);
  }

  test::TemporaryFolder folder_;
};

TEST_F(WanFamily, HasOneExpertForOneTransformer) {
  take("pipeline");
  const ModelSpec model = spec();
  EXPECT_EQ(model.experts.size(), 1U);
  EXPECT_THAT(model.stride, ElementsAre(4, 8, 8));
  EXPECT_THAT(model.patch, ElementsAre(1, 2, 2));
  EXPECT_EQ(model.layout, LatentLayout::channels_first);
  EXPECT_EQ(model.noise, Precision::fp32);
  EXPECT_EQ(model.text_length, 512);
  EXPECT_EQ(token_count(model, latent_size(model, 9, 64, 48), 512), 3 * 4 * 3) << "text is no part of the sequence";
  EXPECT_EQ(model.fingerprint.at("boundary_ratio"), "null");
  EXPECT_EQ(model.defaults.width, 832);
  EXPECT_TRUE(model.prompt.cleaned);
  EXPECT_FALSE(model.prompt.encodes_padding);
}

TEST_F(WanFamily, SplitsTimestepsBetweenTwoExpertsAtTheBoundary) {
  take("pipeline_two_experts");
  const ModelSpec model = spec();
  ASSERT_EQ(model.experts.size(), 2U);
  EXPECT_EQ(model.experts[0].role, "transformer");
  EXPECT_EQ(model.experts[0].from_share, 0.75);
  EXPECT_EQ(model.experts[1].role, "transformer_2");
  EXPECT_EQ(model.experts[1].from_share, 0);
  EXPECT_EQ(model.fingerprint.at("boundary_ratio"), "0.75");
}

TEST_F(WanFamily, SupportsLatentsOf16Pixels) {
  take("pipeline_5b");
  const ModelSpec model = spec();
  EXPECT_THAT(model.stride, ElementsAre(4, 16, 16));
  EXPECT_EQ(model.defaults.frames, 121);
}

TEST_F(WanFamily, TakesNoImageForTextToVideo) {
  take("pipeline");
  EXPECT_FALSE(spec().image.any());
}

TEST_F(WanFamily, KeepsTheFirstFrameWithExpandedTimesteps) {
  take("pipeline_5b");
  const ModelSpec model = spec();
  EXPECT_EQ(model.image.latents, ImageSpec::Latents::first_frame_stays);
  EXPECT_FALSE(model.image.needed || model.image.takes_last || model.image.encodes_video || model.image.has_context);
  EXPECT_EQ(model.fingerprint.at("image_dim"), "null");
}

TEST_F(WanFamily, TakesAnImageIfTheTransformerHasExtraChannels) {
  take("pipeline", "wan_i2v");
  const ModelSpec model = spec();
  EXPECT_EQ(model.latent_channels, 4);
  EXPECT_EQ(model.image.latents, ImageSpec::Latents::beside_noise);
  EXPECT_TRUE(model.image.needed && model.image.encodes_video && model.image.tells_frames && model.image.has_context);
  EXPECT_FALSE(model.image.takes_last || model.image.needs_last || model.image.drawn);
  EXPECT_EQ(model.fingerprint.at("in_channels"), "12");
  EXPECT_EQ(model.fingerprint.at("image_dim"), "32");
  EXPECT_EQ(model.fingerprint.at("pos_embed_seq_len"), "null");
  ASSERT_TRUE(model.defaults.shift_above);
  EXPECT_EQ(model.defaults.shift_above->pixels, 832 * 480);
  EXPECT_EQ(model.defaults.shift_above->shift, 5);
}

TEST_F(WanFamily, NeedsBothImagesIfItHasPositionsForTwo) {
  take("pipeline_two_images", "wan_i2v");
  const ModelSpec model = spec();
  EXPECT_TRUE(model.image.needed && model.image.takes_last && model.image.needs_last && model.image.has_context);
  EXPECT_EQ(model.fingerprint.at("pos_embed_seq_len"), "34");
  EXPECT_FALSE(model.defaults.shift_above);
}

TEST_F(WanFamily, TakesALastImageWithoutAnEncoderForTwoExperts) {
  take("pipeline_two_experts", "wan_i2v");
  const ModelSpec model = spec();
  EXPECT_TRUE(model.image.needed && model.image.takes_last && model.image.tells_frames);
  EXPECT_FALSE(model.image.needs_last || model.image.has_context);
  EXPECT_FALSE(model.defaults.shift_above);
}

TEST_F(WanFamily, RefusesAMissingOrUnsuitableImageEncoder) {
  take("pipeline_two_images", "wan_i2v");
  edit("image_encoder/config.json", [](json& config) { config["image_size"] = 36; });
  EXPECT_TRUE(refused({"image_encoder", "two images' tokens 74", "pos_embed_seq_len 34"}));
  edit("image_encoder/config.json", [](json& config) { config["hidden_size"] = 64; });
  EXPECT_TRUE(refused({"image_encoder", "hidden_size 64", "image_dim 32"}));
  edit("model_index.json", [](json& index) { index["image_encoder"] = json::array({nullptr, nullptr}); });
  EXPECT_TRUE(refused({"model_index.json", "image_encoder is missing", "image_dim of the transformer is 32"}));
}

TEST_F(WanFamily, RefusesInputChannelsThatFitNoTask) {
  take("pipeline", "wan_i2v");
  edit("transformer/config.json", [](json& config) { config["in_channels"] = 8; });
  EXPECT_TRUE(refused({"transformer", "in_channels 8 is neither 4, which is z_dim of the vae, nor", "12"}));
}

TEST_F(WanFamily, RefusesImageAttentionWithoutImageLatents) {
  take("pipeline_5b");
  edit("transformer/config.json", [](json& config) { config["image_dim"] = config["added_kv_proj_dim"] = 1280; });
  EXPECT_TRUE(refused({"transformer", "image_dim is 1280, but in_channels has only the"}));
}

TEST_F(WanFamily, RefusesAMissingExpert) {
  take("pipeline_two_experts");
  edit("model_index.json", [](json& index) { index["transformer_2"] = json::array({nullptr, nullptr}); });
  EXPECT_TRUE(refused({"model_index.json", "boundary_ratio is 0.75, but transformer_2 is missing"}));
}

TEST_F(WanFamily, RefusesTwoExpertsWithoutABoundary) {
  take("pipeline_two_experts");
  edit("model_index.json", [](json& index) { index.erase("boundary_ratio"); });
  EXPECT_TRUE(refused({"model_index.json", "boundary_ratio is missing"}));
  edit("model_index.json", [](json& index) { index["boundary_ratio"] = 875; });
  EXPECT_TRUE(refused({"model_index.json", "875", "between 0 and 1"}));
}

TEST_F(WanFamily, RefusesExpertsOfDifferentShapes) {
  take("pipeline_two_experts");
  edit("transformer_2/config.json", [](json& config) { config["num_layers"] = 3; });
  EXPECT_TRUE(refused({"transformer_2", "num_layers", "3", "2"}));
}

TEST_F(WanFamily, RefusesTheVaeOfAnotherVersion) {
  take("pipeline");
  edit("vae/config.json", [](json& config) {
    config["z_dim"] = 2;
    config["latents_mean"] = config["latents_std"] = json::array({1.0, 1.0});
  });
  EXPECT_TRUE(refused({"vae", "z_dim", "2", "out_channels", "4"}));
}

TEST_F(WanFamily, RefusesTheSettingsOfAnotherVersion) {
  take("pipeline");
  edit("model_index.json", [](json& index) { index["expand_timesteps"] = true; });
  EXPECT_TRUE(refused({"model_index.json", "expand_timesteps is true", "is_residual of the vae is false"}));
  edit("model_index.json", [](json& index) { index["expand_timesteps"] = "yes"; });
  EXPECT_TRUE(refused({"model_index.json", "expand_timesteps is \"yes\""}));
}

TEST_F(WanFamily, RefusesTheTextEncoderOfAnotherModel) {
  take("pipeline");
  edit("text_encoder/config.json", [](json& config) { config["model_type"] = "t5"; });
  EXPECT_TRUE(refused({"text_encoder", "model_type \"t5\" is not supported"}));
  edit("text_encoder/config.json", [](json& config) { config["model_type"] = "umt5"; });
  edit("text_encoder/config.json", [](json& config) { config["d_model"] = 48; });
  EXPECT_TRUE(refused({"text_encoder", "d_model", "48", "text_dim", "32"}));
}

}  // namespace
}  // namespace sparsereel::models
