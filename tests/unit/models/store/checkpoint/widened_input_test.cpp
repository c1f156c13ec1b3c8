// Tests which LoRAs widen the input layer of a text-to-video model, so that the model can take an image.
#include "models/store/checkpoint/widened_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/files/json_text.h"
#include "tests/unit/models/store/checkpoint/lora_fixture.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Uses the model in pipeline/, whose input layer takes 4 channels and patches of 2 x 2 and gives 32 channels.
class WidenedInput : public Lora {
 protected:
  static inline const std::string kPatches = "transformer.patch_embed.proj", kWeight = "patch_embed.proj.weight";

  static std::vector<LoraTensor> pair(const std::string& layer, const std::vector<int64_t>& down) {
    return {{layer + ".lora_down.weight", down}, {layer + ".lora_up.weight", {32, down[0], 1, 1}}};
  }
  /// Copies a model. The copy's transformer has only this tensor. Returns the folder of the copy's transformer.
  fs::path with_only(const std::string& model, const TensorView& tensor) const {
    fs::copy(kData / model, folder_ / "model", fs::copy_options::recursive);
    const fs::path part = folder_ / "model" / "transformer";
    for (const auto& entry : fs::directory_iterator(part))
      if (entry.path().filename() != "config.json") fs::remove(entry.path());
    write_safetensors(part / "diffusion_pytorch_model.safetensors", {tensor}, {});
    return part;
  }
  /// Returns true if the LoRA widens the model's input.
  bool widens(const std::string& model, const std::vector<LoraTensor>& lora) const {
    Checkpoint folder = Checkpoint::open(kData / model);
    return widen_input(folder, {{.file = write(lora)}});
  }
};

TEST_F(WidenedInput, MakesTheModelTakeAnImageWithoutNeedingOne) {
  Checkpoint folder = Checkpoint::open(kData / "pipeline");
  EXPECT_FALSE(describe(folder).image.any());
  const std::vector<LoraChoice> loras = {{.file = write(pair(kPatches, {3, 8, 2, 2}))}};
  ASSERT_TRUE(widen_input(folder, loras));
  const ModelSpec spec = describe(folder);
  EXPECT_EQ(spec.image.latents, ImageSpec::Latents::beside_noise);
  EXPECT_FALSE(spec.image.needed);
  EXPECT_EQ(spec.latent_channels, 4);
  EXPECT_THAT(add_loras(folder, spec, loras), IsEmpty());
  const Component& component = folder.component("transformer");
  EXPECT_THAT(component.shape_of(kWeight), ElementsAre(32, 8, 2, 2));
  EXPECT_EQ(component.deltas.at(kWeight).size(), 1U);
  EXPECT_EQ(component.config.at("in_channels"), 8);
}

TEST_F(WidenedInput, ReadsEveryFormOfTheLayersChange) {
  EXPECT_TRUE(widens("pipeline", pair(kPatches, {3, 32}))) << "A as a matrix";
  EXPECT_TRUE(widens("pipeline", pair("lora_unet_patch_embed_proj", {3, 8, 2, 2})));
  EXPECT_TRUE(widens("pipeline", {{"diffusion_model.patch_embed.proj.diff", {32, 8, 2, 2}}}));
  EXPECT_TRUE(
      widens("pipeline", {{kPatches + ".lora_A.weight", {3, 8, 2, 2}}, {kPatches + ".lora_B.weight", {32, 3}}}));
}

TEST_F(WidenedInput, OtherLorasFitTheWidenedModelInAnyOrder) {
  const fs::path wide = write(pair(kPatches, {3, 8, 2, 2})), other = folder_ / "other.safetensors";
  fs::copy(wide, folder_ / "wide.safetensors");
  fs::rename(write({{kQuery + ".lora_A.weight", {4, 32}}, {kQuery + ".lora_B.weight", {32, 4}}}), other);
  for (const bool wide_first : {true, false}) {
    std::vector<LoraChoice> loras = {{.file = folder_ / "wide.safetensors"}, {.file = other}};
    if (!wide_first) std::swap(loras[0], loras[1]);
    Checkpoint folder = Checkpoint::open(kData / "pipeline");
    ASSERT_TRUE(widen_input(folder, loras));
    EXPECT_THAT(add_loras(folder, describe(folder), loras), IsEmpty());
    EXPECT_EQ(folder.component("transformer").deltas.size(), 2U);
  }
}

TEST_F(WidenedInput, IsLeftAsItIsByLorasOfOtherChannelsOrModels) {
  EXPECT_FALSE(widens("pipeline", pair(kPatches, {3, 4, 2, 2}))) << "for the model as it is";
  EXPECT_FALSE(widens("pipeline", pair(kPatches, {3, 12, 2, 2}))) << "no model has so many";
  EXPECT_FALSE(widens("pipeline", pair(kPatches, {3, 8, 4, 4}))) << "another kernel";
  EXPECT_FALSE(widens("pipeline", {{kQuery + ".lora_A.weight", {4, 32}}, {kQuery + ".lora_B.weight", {32, 4}}}));
  EXPECT_FALSE(widens("cogvideox_i2v/pipeline", pair(kPatches, {3, 8, 2, 2}))) << "takes an image already";
  EXPECT_FALSE(widens("wan/pipeline", image_to_video({}))) << "its images need more than channels";
  std::vector<LoraTensor> other = pair(kPatches, {3, 12, 2, 2});
  other.push_back({kQuery + ".lora_A.weight", {4, 32}});
  other.push_back({kQuery + ".lora_B.weight", {32, 4}});
  EXPECT_THAT(warnings("pipeline", write(other)), ElementsAre(HasSubstr("1 with other input channels: \"" + kPatches)));
}

TEST_F(WidenedInput, MayBeAMatrixOfPatches) {
  nlohmann::json config = read_json(kData / "cogvideox_i2v/pipeline_1.5/transformer/config.json");
  const int64_t channels = config["out_channels"], columns = 8 * channels;  // a patch is two frames of 2 x 2 latents
  const std::vector<std::byte> data(static_cast<size_t>(32 * columns) * 2);
  const fs::path part = with_only("cogvideox_i2v/pipeline_1.5", {kWeight, Dtype::f16, {32, columns}, data});
  config["in_channels"] = channels;
  test::write_text(part / "config.json", config.dump());
  Checkpoint folder = Checkpoint::open(folder_ / "model");
  const fs::path lora =
      write({{kPatches + ".lora_A.weight", {3, 2 * columns}}, {kPatches + ".lora_B.weight", {32, 3}}});
  ASSERT_TRUE(widen_input(folder, {{.file = lora}}));
  EXPECT_THAT(folder.component("transformer").shape_of(kWeight), ElementsAre(32, 2 * columns));
  EXPECT_TRUE(describe(folder).image.any());
}

TEST_F(WidenedInput, IsRefusedForAWeightIn8Bits) {
  const std::vector<std::byte> data(32 * 4 * 2 * 2);
  const fs::path part = with_only("pipeline", {kWeight, Dtype::f8_e4m3, {32, 4, 2, 2}, data});
  Checkpoint folder = Checkpoint::open(folder_ / "model");
  const fs::path lora = write(pair(kPatches, {3, 8, 2, 2}));
  EXPECT_TRUE(test::throws_error([&] { widen_input(folder, {{.file = lora}}); },
                                 {(part / "diffusion_pytorch_model.safetensors").string(), "stores \"" + kWeight,
                                  "as F8_E4M3", kPatches, lora.string()}));
}

}  // namespace
}  // namespace sparsereel::models
