// Tests how names of tensors identify files of models that the program does not support.
#include "models/store/checkpoint/foreign_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "models/store/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

struct Shape {
  const char* name;
  std::vector<int64_t> shape = {1};
};

std::string told(const std::vector<Shape>& tensors) {
  const test::TemporaryFolder folder;
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorView> views;
  for (const Shape& tensor : tensors) {
    size_t bytes = size_of(Dtype::f16);
    for (const int64_t size : tensor.shape) bytes *= static_cast<size_t>(size);
    data.emplace_back(bytes);
    views.push_back({tensor.name, Dtype::f16, tensor.shape, {}});
  }
  for (size_t i = 0; i < views.size(); ++i) views[i].data = data[i];
  write_safetensors(folder / "a.safetensors", views, {});
  return foreign_model(folder / "a.safetensors");
}

TEST(ForeignModel, IsRecognizedByItsTensors) {
  EXPECT_EQ(told({{"model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", {1, 768}},
                  {"first_stage_model.decoder.conv_in.weight", {1, 4, 1, 1}}}),
            "an SD 1.5 checkpoint");
  EXPECT_EQ(told({{"down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.weight", {1, 2048}}}),
            "an SDXL checkpoint");
  EXPECT_EQ(told({{"double_blocks.0.img_attn.norm.key_norm.scale"}, {"img_in.weight"}}), "a Flux checkpoint");
  EXPECT_EQ(told({{"double_blocks.0.img_attn.norm.key_norm.scale"},
                  {"txt_in.individual_token_refiner.blocks.0.norm1.weight"}}),
            "a HunyuanVideo checkpoint");
  EXPECT_EQ(told({{"model.diffusion_model.joint_blocks.0.context_block.attn.qkv.weight"}}), "an SD 3 checkpoint");
  EXPECT_EQ(told({{"transformer_blocks.0.img_mod.1.weight"}, {"txt_norm.weight"}}), "a Qwen-Image checkpoint");
  EXPECT_EQ(told({{"patchify_proj.weight"}, {"transformer_blocks.0.attn2.to_q.weight"}}), "an LTX-Video checkpoint");
  EXPECT_EQ(told({{"text_model.encoder.layers.0.self_attn.q_proj.weight", {768, 1}}}), "a CLIP-L text encoder");
  EXPECT_EQ(told({{"decoder.conv_in.weight", {1, 16, 1, 1}}, {"decoder.mid.block_1.conv1.weight"}}),
            "a VAE of SD 3 or Flux");
  EXPECT_EQ(told({{"model.layers.0.self_attn.q_proj.weight"}}), "a language model");
  EXPECT_EQ(told({{"anything"}}), "");
}

TEST(ForeignModel, IsRecognizedByTheLayersOfALora) {
  EXPECT_EQ(told({{"lora_te2_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", {1, 1}}}), "an SDXL LoRA");
  EXPECT_EQ(told({{"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k.lora_down.weight", {1, 768}}}),
            "an SD 1.5 LoRA");
  EXPECT_EQ(told({{"transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight", {1, 3072}}}), "a Flux LoRA");
  EXPECT_EQ(told({{"diffusion_model.double_blocks.19.img_attn.qkv.lora_A.weight", {1, 3072}}}), "a HunyuanVideo LoRA");
  EXPECT_EQ(told({{"diffusion_model.blocks.0.self_attn.q.lora_A.weight", {1, 5120}}}), "");
}

TEST(ForeignModel, IsNotReportedForSupportedOrDamagedFiles) {
  const fs::path data = SPARSEREEL_TEST_DATA;
  for (const char* folder : {"pipeline", "wan/pipeline", "wan_i2v/pipeline", "mochi/pipeline"}) {
    for (const char* role : {"transformer", "vae"}) {
      for (const auto& entry : fs::directory_iterator(data / folder / role)) {
        if (entry.path().extension() != ".safetensors") continue;
        EXPECT_EQ(foreign_model(entry.path()), "") << entry.path();
      }
    }
  }
  for (const char* lora : {"lora/metadata.safetensors", "wan/lora/kohya.safetensors", "wan/lora/diffusers.safetensors"})
    EXPECT_EQ(foreign_model(data / lora), "") << lora;
  const test::TemporaryFolder folder;
  std::ofstream(folder / "a.safetensors") << "abc";
  EXPECT_EQ(foreign_model(folder / "a.safetensors"), "");
}

}  // namespace
}  // namespace sparsereel::models
