// Tests which LoRA files are refused, and which tensors are left out with a warning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/store/checkpoint/lora_names.h"
#include "tests/unit/models/store/checkpoint/lora_fixture.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::throws_error;
using ::testing::ElementsAre;

TEST_F(Lora, OmitsOtherTensorsWithAWarning) {
  const std::string query = "diffusion_model.blocks.0.self_attn.q";
  const fs::path file =
      write({{query + ".lora_A.weight", {2, 32}}, {query + ".lora_B.weight", {32, 2}}, {"step", {1}}, {"ema", {2}}});
  EXPECT_THAT(warnings("wan/pipeline", file),
              ElementsAre(file.string() + ": left out: 2 tensors that are not part of a LoRA: \"ema\", \"step\""));
  EXPECT_EQ(added("wan/pipeline", file.string(), "transformer").size(), 1U);
  EXPECT_TRUE(throws_error([&] { warnings("wan/pipeline", file, /*strict=*/true); }, {"2 tensors", "\"step\""}));
  const std::string deep = "diffusion_model.blocks.7.self_attn.q";
  EXPECT_TRUE(does_not_fit(
      "wan/pipeline",
      write({{deep + ".lora_A.weight", {2, 32}}, {deep + ".lora_B.weight", {32, 2}}, {"step", {1}}}).string(),
      {"1 layer that this model does not have", "1 tensor that is not part of a LoRA"}));
}

TEST_F(Lora, RefusesAFileThatFitsTooLittle) {
  EXPECT_TRUE(
      does_not_fit("wan/pipeline", write(image_to_video({})).string(), {"4 layers that this model does not have"}));
  const std::string query = "diffusion_model.blocks.0.self_attn.q";
  EXPECT_TRUE(does_not_fit("wan/pipeline", write(image_to_video({{query + ".diff", {32, 31}}})).string(),
                           {"1 with another shape: \"" + query, "4 layers"}));
  const std::string deep = "diffusion_model.blocks.7.self_attn.q";
  EXPECT_TRUE(does_not_fit("wan/pipeline",
                           write({{query + ".lora_down.weight", {2, 32}},
                                  {query + ".lora_up.weight", {32, 2}},
                                  {deep + ".lora_down.weight", {2, 32}},
                                  {deep + ".lora_up.weight", {32, 2}}})
                               .string(),
                           {"made for 8 blocks, but this transformer has", "1 layer that this model does not have"}));
}

TEST_F(Lora, WarnsAboutPeftNamesWithoutAlpha) {
  const std::string query = "base_model.model.blocks.0.self_attn.q";
  const std::vector<LoraTensor> pair = {{query + ".lora_A.weight", {2, 32}}, {query + ".lora_B.weight", {32, 2}}};
  const std::vector<std::string> warned = warnings("wan/pipeline", write(pair));
  ASSERT_EQ(warned.size(), 1U);
  EXPECT_NE(warned[0].find("a.safetensors: has PEFT's names but no alpha, so alpha is taken to be the rank"),
            std::string::npos)
      << warned[0];
  std::vector<LoraTensor> with_alpha = pair;
  with_alpha.push_back({query + ".alpha", {}, 1});
  EXPECT_TRUE(warnings("wan/pipeline", write(with_alpha)).empty());
  EXPECT_TRUE(warnings("wan/pipeline", kData / "wan/lora/original_peft.safetensors").empty());
}

TEST_F(Lora, NamesTheModelThatAFileWasMadeFor) {
  const fs::path wide = write({{kQuery + ".lora_A.weight", {2, 1920}}, {kQuery + ".lora_B.weight", {1920, 2}}});
  EXPECT_TRUE(does_not_fit("pipeline", wide.string(),
                           {"it was made for inner width 1920, but this transformer has 32",
                            "is for [1920, 1920], but \"transformer_blocks.0.attn1.to_q.weight\" is [32, 32]"}));
  for (const char* file : {"kohya", "original", "diffusers"})
    EXPECT_TRUE(does_not_fit("pipeline", (kData / "wan/lora" / file).string() + ".safetensors",
                             {"it seems to be made for Wan, but this checkpoint is CogVideoX"}));
  EXPECT_TRUE(does_not_fit("wan/pipeline", (kData / "lora/metadata.safetensors").string(),
                           {"it seems to be made for CogVideoX, but this checkpoint is Wan"}));
  const std::string other = "unet.down_blocks.0.proj";
  const fs::path foreign = write({{other + ".lora_A.weight", {2, 8}}, {other + ".lora_B.weight", {8, 2}}});
  EXPECT_TRUE(
      does_not_fit("pipeline", foreign.string(), {"no model that this program knows", "unet.down_blocks.0.proj"}));
}

TEST_F(Lora, RefusesIncompleteLayers) {
  const LoraTensor down{kQuery + ".lora_A.weight", {2, 32}}, up{kQuery + ".lora_B.weight", {32, 2}};
  EXPECT_TRUE(refused({down}, {kQuery + ".lora_A.weight", "has no B"}));
  EXPECT_TRUE(refused({up}, {kQuery + ".lora_B.weight", "has no A"}));
  EXPECT_TRUE(refused({{kQuery + ".alpha", {}}}, {"only an alpha or a bias"}));
  EXPECT_TRUE(refused({down, {kQuery + ".lora_B.weight", {32, 3}}}, {"has rank 3", "lora_A.weight\" has 2"}));
  EXPECT_TRUE(refused({down, up, {kQuery + ".lora_down.weight", {2, 32}}}, {"which means the same"}));
  EXPECT_TRUE(refused({down, up, {kQuery + ".diff", {32, 32}}}, {kQuery + ".diff", "appears beside"}));
  EXPECT_TRUE(refused({{kQuery + ".lora_A.weight", {0, 32}}, {kQuery + ".lora_B.weight", {32, 0}}}, {"has rank 0"}));
  EXPECT_TRUE(refused({{kQuery + ".lora_A.weight", {2, 32}, 1, Dtype::i32}, up}, {"is stored as I32"}));
}

TEST_F(Lora, RefusesImpossibleAlphas) {
  const LoraTensor down{kQuery + ".lora_A.weight", {2, 32}}, up{kQuery + ".lora_B.weight", {32, 2}};
  for (const float alpha : {INFINITY, -INFINITY, NAN})
    EXPECT_TRUE(refused({down, up, {kQuery + ".alpha", {}, alpha}}, {kQuery + ".alpha", "not a finite 32-bit number"}));
  EXPECT_TRUE(refused({down, up, {kQuery + ".alpha", {2}}}, {"not a single finite number"}));
  const auto metadata = [](const char* text) {
    return std::map<std::string, std::string>{{"lora_adapter_metadata", text}};
  };
  EXPECT_TRUE(
      refused({down, up}, {"lora_alpha is \"8\", not a finite"}, metadata(R"({"transformer.lora_alpha": "8"})")));
  EXPECT_TRUE(refused({down, up}, {"lora_alpha is 1e+300, not a finite 32-bit number"},
                      metadata(R"({"transformer.lora_alpha": 1e300})")));
  EXPECT_TRUE(refused({down, up}, {"alpha_pattern", "regular expression"},
                      metadata(R"({"transformer.alpha_pattern": {"to_(": 2}})")));
  EXPECT_TRUE(refused({down, up}, {"lora_adapter_metadata"}, metadata("{")));
  EXPECT_TRUE(refused({down, up}, {"not a JSON object"}, metadata("[1]")));
}

TEST_F(Lora, RefusesOtherAdaptersByName) {
  const LoraTensor down{kQuery + ".lora_A.weight", {2, 32}}, up{kQuery + ".lora_B.weight", {32, 2}};
  EXPECT_TRUE(refused({down, up, {kQuery + ".dora_scale", {32}}}, {"DoRA", "not supported"}));
  EXPECT_TRUE(refused({{kQuery + ".hada_w1_a", {2, 2}}}, {"LoHa"}));
  EXPECT_TRUE(refused({{kQuery + ".lokr_w1", {2, 2}}}, {"LoKr"}));
  EXPECT_TRUE(refused({{kQuery + ".lora_mid.weight", {2, 2, 3, 3}}}, {"LoCon"}));
  EXPECT_TRUE(refused({{kQuery + ".lora_A.weight", {32}}, up}, {kQuery + ".lora_A.weight", "has 1 dimensions"}));
  EXPECT_TRUE(refused({down, up}, {"use_dora"}, {{"lora_adapter_metadata", R"({"transformer.use_dora": true})"}}));
  EXPECT_TRUE(refused({{"lycoris_blocks_0_self_attn_q.lokr_w1", {2, 2}}}, {"LyCORIS", "not supported"}));
  EXPECT_TRUE(refused({{kQuery + ".oft_diag", {2, 2}}}, {"OFT"}));
  EXPECT_TRUE(
      refused({{"transformer_blocks.0.attn1.to_q.weight", {2, 2}}}, {"none of the 1 tensors is part of a LoRA"}));
}

TEST(IsLora, RequiresThatMostTensorsBelongToAnAdapter) {
  const auto is_one = [](const std::vector<std::string>& names) {
    TensorTable tensors;
    for (const std::string& name : names) tensors[name] = {0, nullptr};
    return is_lora(tensors);
  };
  EXPECT_TRUE(is_one({"x.lora_A.weight", "x.lora_B.weight"}));
  EXPECT_TRUE(is_one({"x.lora_A.style.weight", "x.lora_B.style.weight", "step"}));
  EXPECT_TRUE(is_one({"x.diff", "x.diff_b"}));
  EXPECT_TRUE(is_one({"x_lora.up.weight", "x.lora.down.weight", "x.lora_linear_layer.up.weight"}));
  EXPECT_TRUE(is_one({"lora_unet_x.hada_w1_a", "lora_unet_x.alpha", "lora_unet_x.other"}));
  EXPECT_TRUE(is_one({"x.lokr_w1", "x.dora_scale"}));
  EXPECT_FALSE(is_one({}));
  EXPECT_FALSE(is_one({"x.weight", "x.bias"}));
  EXPECT_FALSE(is_one({"act.alpha", "conv.weight", "conv.bias"})) << "an activation's";
  EXPECT_FALSE(is_one({"x.weight", "y.weight", "x.lora_A.weight"}));
}

TEST_F(Lora, RefusesTruncatedAndMissingFiles) {
  const fs::path file = write({{kQuery + ".lora_A.weight", {2, 32}}, {kQuery + ".lora_B.weight", {32, 2}}});
  fs::resize_file(file, fs::file_size(file) - 4);
  EXPECT_TRUE(throws_error([&] { read_lora(file); }, {file.string(), "end outside of the file"}));
  EXPECT_TRUE(throws_error([&] { read_lora(folder_ / "none"); }, {"none"}));
}

}  // namespace
}  // namespace sparsereel::models
