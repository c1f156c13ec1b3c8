// Tests which component of a model a LoRA changes: one of two transformers, or the text encoder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/store/checkpoint/expert_name.h"
#include "tests/unit/models/store/checkpoint/lora_fixture.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

TEST_F(Lora, ChoosesAnExpertByItsName) {
  const std::string file = (kData / "wan/lora/kohya.safetensors").string(), model = "wan/pipeline_two_experts";
  EXPECT_EQ(added(model, file, "transformer").size(), 20U);
  EXPECT_EQ(added(model, file, "transformer_2").size(), 20U);
  EXPECT_EQ(added(model, file + "@high", "transformer").size(), 20U);
  EXPECT_TRUE(added(model, file + "@high", "transformer_2").empty());
  EXPECT_TRUE(added(model, file + "@low:2", "transformer").empty());
  EXPECT_EQ(added(model, file + "@low:2", "transformer_2").size(), 20U);
  EXPECT_TRUE(does_not_fit(model, file + "@middle", {"no transformer is called middle"}));
  EXPECT_TRUE(does_not_fit("wan/pipeline", file + "@high", {"this model has only one transformer"}));
}

TEST_F(Lora, AssignsLayersToTheExpertThatTheyName) {
  const std::string model = "wan/pipeline_two_experts";
  const std::string file = write({{"transformer.blocks.0.attn1.to_q.diff", {32, 32}},
                                  {"transformer_2.blocks.0.attn1.to_k.diff", {32, 32}},
                                  {"blocks.0.attn1.to_v.diff", {32, 32}}});
  const auto names = [&](const char* component) {
    std::vector<std::string> all;
    for (const auto& [name, deltas] : added(model, file, component)) all.push_back(name);
    return all;
  };
  EXPECT_THAT(names("transformer"), ElementsAre("blocks.0.attn1.to_q.weight", "blocks.0.attn1.to_v.weight"));
  EXPECT_THAT(names("transformer_2"), ElementsAre("blocks.0.attn1.to_k.weight", "blocks.0.attn1.to_v.weight"));
  EXPECT_TRUE(
      does_not_fit(model, file + "@high", {"@high", "its layers already name the transformer that they are for"}));
}

TEST_F(Lora, DistinguishesNumberedTransformers) {
  const std::string model = "wan/pipeline_two_experts", query = ".blocks.0.self_attn.q";
  const auto of = [&](const std::string& first, const std::string& second) {
    std::vector<LoraTensor> tensors;
    for (const std::string& name : {first, second})
      if (!name.empty()) tensors.push_back({name + query + ".diff", {32, 32}});
    return write(tensors).string();
  };
  const std::string one = "diffusion_model.transformer_1", two = "diffusion_model.transformer_2";
  const std::string both = of(one, two);
  EXPECT_EQ(added(model, both, "transformer").size(), 1U);
  EXPECT_EQ(added(model, both, "transformer_2").size(), 1U);
  const std::string first = of(one, "");
  EXPECT_EQ(added(model, first, "transformer").size(), 1U);
  EXPECT_TRUE(added(model, first, "transformer_2").empty());
  const std::string second = of("", two);
  EXPECT_TRUE(added(model, second, "transformer").empty());
  EXPECT_EQ(added(model, second, "transformer_2").size(), 1U);
  EXPECT_EQ(added("wan/pipeline", of(one, ""), "transformer").size(), 1U);
}

TEST_F(Lora, ChoosesTheExpertByTheFileName) {
  const std::string model = "wan/pipeline_two_experts";
  const auto copy = [&](const std::string& name) {
    fs::create_directories((folder_ / name).parent_path());
    fs::copy(kData / "wan/lora/kohya.safetensors", folder_ / name, fs::copy_options::overwrite_existing);
    return (folder_ / name).string();
  };
  for (const char* name :
       {"a-HighNoise", "lora_HIGH_fp16", "style-wan22-high", "T2V-HIGH-style", "high_noise_model/lora", "HIGH/a"}) {
    const std::string file = copy(std::string(name) + ".safetensors");
    EXPECT_EQ(added(model, file, "transformer").size(), 20U) << name;
    EXPECT_TRUE(added(model, file, "transformer_2").empty()) << name;
    EXPECT_EQ(added(model, file + "@low", "transformer_2").size(), 20U) << name;
    EXPECT_TRUE(added(model, file + "@low", "transformer").empty()) << name;
    EXPECT_THAT(warnings(model, file), ElementsAre(testing::HasSubstr(file + " to the transformer for high noise")))
        << name;
    EXPECT_EQ(added("wan/pipeline", file, "transformer").size(), 20U) << name;
    EXPECT_TRUE(warnings("wan/pipeline", file).empty()) << name;
  }
  const std::string low = copy("style_low.safetensors"), both = copy("high-and-low.safetensors");
  EXPECT_TRUE(added(model, low, "transformer").empty());
  EXPECT_EQ(added(model, low, "transformer_2").size(), 20U);
  EXPECT_EQ(added(model, both, "transformer").size(), 20U);
  EXPECT_EQ(added(model, both, "transformer_2").size(), 20U);
}

TEST(ExpertName, IsASeparateWord) {
  for (const char* name : {"wan_HIGH_fp8", "A14B-HighNoise-Q4", "high_noise_model", "High", "wan2.2.high.safetensors",
                           "highres-high", "x-high14b"})
    EXPECT_EQ(expert_in_name(name), "high") << name;
  for (const char* name : {"A14B-LOW_fp8", "lownoise", "model low.safetensors"})
    EXPECT_EQ(expert_in_name(name), "low") << name;
  for (const char* name : {"", "highlands", "slow-motion", "low-poly", "high_quality.safetensors", "flow", "high-low",
                           "yellow-x", "low-res"})
    EXPECT_EQ(expert_in_name(name), "") << name;
  EXPECT_EQ(expert_of_file("LowNoise/high.safetensors"), "high");
  EXPECT_EQ(expert_of_file("LowNoise/model.safetensors"), "low");
}

TEST_F(Lora, AppliesTextEncoderLayersOnlyToTheTextEncoder) {
  const std::string file = (kData / "lora/text.safetensors").string();
  EXPECT_EQ(added("pipeline", file, "text_encoder").size(), 2U);
  EXPECT_TRUE(added("pipeline", file, "transformer").empty());
}

TEST_F(Lora, UnderstandsManyNamesOfTextEncoderLayers) {
  const std::string layer = "encoder.block.0.layer.0.SelfAttention.q";
  for (const std::string& name :
       {"text_encoder." + layer, "text_encoders." + layer, "text_encoders.t5xxl.transformer." + layer,
        "text_encoders.transformer." + layer, "t5xxl.transformer." + layer, "text_encoder.base_model.model." + layer,
        "base_model.model.text_encoder." + layer, "text_encoder._orig_mod." + layer,
        std::string("lora_te_encoder_block_0_layer_0_SelfAttention_q"),
        std::string("lora_te1_encoder_block_0_layer_0_SelfAttention_q")}) {
    const fs::path file = write({{name + ".lora_A.weight", {2, 32}}, {name + ".lora_B.weight", {32, 2}}});
    EXPECT_NO_THROW(warnings("pipeline", file, /*strict=*/true)) << name;
    EXPECT_EQ(added("pipeline", file.string(), "text_encoder").count(layer + ".weight"), 1U) << name;
    EXPECT_TRUE(added("pipeline", file.string(), "transformer").empty()) << name;
  }
}

TEST_F(Lora, AppliesTextEncoderLayersOnceForAllExperts) {
  const std::string model = "wan/pipeline_two_experts", query = "encoder.block.0.layer.0.SelfAttention.q";
  const Checkpoint folder = Checkpoint::open(kData / model);
  const std::vector<int64_t> shape = folder.component("text_encoder").tensors.at(query + ".weight").second->shape;
  const std::string file = write({{"text_encoder." + query + ".lora_A.weight", {2, shape[1]}},
                                  {"text_encoder." + query + ".lora_B.weight", {shape[0], 2}},
                                  {"transformer.blocks.0.attn1.to_q.diff", {32, 32}}});
  for (const char* expert : {"", "@high", "@low"})
    EXPECT_EQ(added(model, file + expert, "text_encoder").size(), 1U) << expert;
  EXPECT_EQ(added(model, file + "@high", "transformer").size(), 1U);
  EXPECT_TRUE(added(model, file + "@high", "transformer_2").empty());
  EXPECT_EQ(added(model, file + "@high," + file + "@low:0", "text_encoder").at(query + ".weight").size(), 1U);
  const std::string same = (folder_ / "." / "a.safetensors").string();
  for (const std::string& twice :
       {file + "@high," + file + "@low:0.5", file + "@high," + same + "@low:0.5", file + "," + file + "@low:0.5"})
    EXPECT_TRUE(does_not_fit(model, twice, {"@low:0.5", "text encoder", "would be added twice"}));
  EXPECT_EQ(added(model, file + "," + file, "text_encoder").at(query + ".weight").size(), 2U);
}

}  // namespace
}  // namespace sparsereel::models
