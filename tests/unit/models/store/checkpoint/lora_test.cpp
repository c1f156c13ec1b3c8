// Tests which LoRA files are read, what they change in a checkpoint, and the errors about files that are refused.
#include "models/store/checkpoint/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <utility>

#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/expert_name.h"
#include "models/store/checkpoint/lora_names.h"
#include "models/store/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::throws_error;
using ::testing::ElementsAre;

const fs::path kData = SPARSEREEL_TEST_DATA;
const std::string kQuery = "transformer.transformer_blocks.0.attn1.to_q";

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  float value = 1;
  Dtype dtype = Dtype::f32;
};

class Lora : public ::testing::Test {
 protected:
  fs::path write(const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata = {}) const {
    std::vector<std::vector<float>> data;
    std::vector<TensorView> views;
    for (const Tensor& tensor : tensors) {
      size_t count = 1;
      for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
      data.emplace_back(count, tensor.value);
      views.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
    }
    for (size_t i = 0; i < views.size(); ++i) views[i].data = std::as_bytes(std::span(data[i]));
    write_safetensors(folder_ / "a.safetensors", views, metadata);
    return folder_ / "a.safetensors";
  }
  testing::AssertionResult refused(const std::vector<Tensor>& tensors, const std::vector<std::string>& parts,
                                   const std::map<std::string, std::string>& metadata = {}) const {
    const fs::path file = write(tensors, metadata);
    std::vector<std::string> all = parts;
    all.push_back(file.string());
    return throws_error([&] { read_lora(file); }, all);
  }
  /// Returns the deltas that the LoRAs add to a component of the checkpoint.
  static WeightDeltas added(const std::string& model, const std::string& loras, const std::string& component) {
    Checkpoint folder = Checkpoint::open(kData / model);
    add_loras(folder, describe(folder), parse_loras(loras));
    return folder.component(component).deltas;
  }
  static std::vector<std::string> warnings(const std::string& model, const fs::path& file, bool strict = false) {
    Checkpoint folder = Checkpoint::open(kData / model);
    return add_loras(folder, describe(folder), {{.file = file}}, strict);
  }
  static testing::AssertionResult does_not_fit(const std::string& model, const std::string& loras,
                                               const std::vector<std::string>& parts) {
    return throws_error([&] { added(model, loras, "transformer"); }, parts);
  }

  test::TemporaryFolder folder_;
};

TEST_F(Lora, ParsesFileExpertAndScale) {
  const std::vector<LoraChoice> loras =
      parse_loras("a.safetensors, b/c@2.safetensors@high:-0.5,d:e/f.safetensors:1e-3");
  ASSERT_EQ(loras.size(), 3U);
  EXPECT_EQ(loras[0].file, "a.safetensors");
  EXPECT_EQ(loras[0].scale, 1);
  EXPECT_EQ(loras[1].file, "b/c@2.safetensors");
  EXPECT_EQ(loras[1].expert, "high");
  EXPECT_EQ(loras[1].scale, -0.5);
  EXPECT_EQ(loras[2].file, "d:e/f.safetensors");
  EXPECT_EQ(loras[2].scale, 0.001);
  EXPECT_EQ(text_of(loras, true), "a.safetensors,b/c@2.safetensors@high:-0.5,d:e/f.safetensors:0.001");
  EXPECT_EQ(text_of(loras, false), "a.safetensors,c@2.safetensors@high:-0.5,f.safetensors:0.001");
  EXPECT_TRUE(parse_loras("").empty());
  for (const char* text : {"a:", "a:o.8", "a:nan", "a:inf", "a:1e300", "a:-1e39", ":1", "@high", "a,,b"})
    EXPECT_TRUE(throws_error([&] { parse_loras(text); }, {"lora "})) << text;
}

TEST_F(Lora, ScalesALayerByAlphaOverRank) {
  const std::vector<Tensor> pair = {{kQuery + ".lora_A.weight", {4, 8}}, {kQuery + ".lora_B.weight", {8, 4}}};
  EXPECT_EQ(read_lora(write(pair)).layers.at(0).strength, 1);
  std::vector<Tensor> with_alpha = pair;
  with_alpha.push_back({kQuery + ".alpha", {}, 2});
  EXPECT_EQ(read_lora(write(with_alpha)).layers.at(0).strength, 0.5);
  const auto strength = [&](const std::string& metadata, const std::vector<Tensor>& tensors) {
    return read_lora(write(tensors, {{"lora_adapter_metadata", metadata}})).layers.at(0).strength;
  };
  EXPECT_EQ(strength(R"({"transformer.lora_alpha": 8})", pair), 2);
  EXPECT_EQ(strength(R"({"transformer.lora_alpha": 8, "transformer.use_rslora": true})", pair), 4);
  EXPECT_EQ(strength(R"({"transformer.lora_alpha": 8, "transformer.alpha_pattern": {"attn1.to_q": 1}})", pair), 0.25);
  EXPECT_EQ(strength(R"({"transformer.lora_alpha": 8, "transformer.alpha_pattern": {"^.*\\.to_[q]": 1}})", pair), 0.25);
  EXPECT_EQ(strength(R"({"text_encoder.lora_alpha": 8})", pair), 1) << "another part's";
  for (const char* key : {"alpha", "lora_alpha", "network_alpha"}) {
    EXPECT_EQ(read_lora(write(pair, {{key, "2"}})).layers.at(0).strength, 0.5) << key;
    EXPECT_EQ(read_lora(write(with_alpha, {{key, "16"}})).layers.at(0).strength, 0.5) << key;
  }
  EXPECT_EQ(strength(R"({"transformer.lora_alpha": 8})", with_alpha), 0.5) << "the tensor's is nearer";
}

TEST_F(Lora, ReadsAlphaPerLayerKindFromTrainingArguments) {
  const auto strengths = [&](const std::string& arguments) {
    std::vector<double> all;
    for (const std::string layer : {"blocks.0.attn.proj_y", "blocks.0.attn.qkv_x", "blocks.0.mlp_x.w1"})
      all.push_back(
          read_lora(write({{layer + ".lora_A", {4, 8}}, {layer + ".lora_B", {8, 4}}}, {{"kwargs", arguments}}))
              .layers.at(0)
              .strength);
    return all;
  };
  EXPECT_EQ(strengths(R"({"qkv_proj_lora_alpha": 8, "out_proj_lora_alpha": 2, "out_proj_lora_dropout": 0.5})"),
            (std::vector<double>{0.5, 2, 1}));
  for (const char* other : {"{", "[1]", "8", R"({"depth": 48})"})
    EXPECT_EQ(strengths(other), (std::vector<double>{1, 1, 1})) << other;
  EXPECT_TRUE(refused({{"blocks.0.attn.qkv_x.lora_A", {4, 8}}, {"blocks.0.attn.qkv_x.lora_B", {8, 4}}},
                      {"kwargs: qkv_proj_lora_alpha is not a finite number"},
                      {{"kwargs", R"({"qkv_proj_lora_alpha": null})"}}));
}

TEST_F(Lora, ReadsAlphasInHalfPrecision) {
  const std::vector<uint16_t> ones(16, 0), half = {0x4200}, small = {0x8001}, bfloat = {0x40a0};
  const auto alpha = [&](const std::vector<uint16_t>& bits, Dtype dtype) {
    const auto bytes = [](const auto& data) { return std::as_bytes(std::span(data)); };
    write_safetensors(folder_ / "a.safetensors", {{kQuery + ".lora_A.weight", Dtype::f16, {2, 8}, bytes(ones)},
                                                  {kQuery + ".lora_B.weight", Dtype::f16, {8, 2}, bytes(ones)},
                                                  {kQuery + ".alpha", dtype, {1}, bytes(bits)}});
    return read_lora(folder_ / "a.safetensors").layers.at(0).alpha;
  };
  EXPECT_EQ(alpha(half, Dtype::f16), 3);
  EXPECT_EQ(alpha(small, Dtype::f16), -std::ldexp(1, -24));
  EXPECT_EQ(alpha(bfloat, Dtype::bf16), 5);
}

TEST_F(Lora, UnderstandsEverySpellingOfNames) {
  for (const char* base :
       {"transformer.blocks.0.attn1.to_q", "blocks.0.self_attn.q", "diffusion_model.blocks.0.self_attn.q",
        "base_model.model.blocks.0.self_attn.q", "base_model.model.transformer.blocks.0.attn1.to_q",
        "base_model.model.diffusion_model.blocks.0.self_attn.q", "pipe.dit.blocks.0.self_attn.q",
        "lora_unet_blocks_0_self_attn_q", "lora_unet__blocks_0_attn1_to_q",
        // Trainers, compilers and pipelines add these prefixes and words to the names.
        "transformer.base_model.model.blocks.0.attn1.to_q", "unet.base_model.model.blocks.0.attn1.to_q",
        "module.blocks.0.self_attn.q", "_orig_mod.blocks.0.self_attn.q", "module._orig_mod.blocks.0.self_attn.q",
        "transformer._orig_mod.blocks.0.attn1.to_q", "diffusion_model._orig_mod.blocks.0.self_attn.q",
        "transformer._fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.attn1.to_q",
        "blocks.0._checkpoint_wrapped_module.self_attn.q", "model.diffusion_model.blocks.0.self_attn.q",
        "diffusion_model.transformer.blocks.0.self_attn.q", "dit.blocks.0.self_attn.q", "model.blocks.0.self_attn.q",
        "base_model.model.unet.blocks.0.self_attn.q", "lora_unet_blocks_0.self_attn.q",
        "lora_unet__orig_mod_blocks_0_self_attn_q", "lora_unet_blocks_0__orig_mod_self_attn_q"}) {
    const std::string name = base;
    for (const auto& [down, up] : {std::pair{".lora_A.weight", ".lora_B.weight"},
                                   {".lora_down.weight", ".lora_up.weight"},
                                   {".lora_A.default.weight", ".lora_B.default.weight"},
                                   {".lora_A.style.weight", ".lora_B.style.weight"},
                                   {".lora.down.weight", ".lora.up.weight"},
                                   {"_lora.down.weight", "_lora.up.weight"},
                                   {".lora_linear_layer.down.weight", ".lora_linear_layer.up.weight"},
                                   {".lora_A", ".lora_B"},
                                   {".lora_down", ".lora_up"}}) {
      const fs::path file = write({{name + down, {2, 32}}, {name + up, {32, 2}}});
      EXPECT_EQ(added("wan/pipeline", file.string(), "transformer").count("blocks.0.attn1.to_q.weight"), 1U) << name;
    }
  }
}

TEST_F(Lora, UnderstandsTheOriginalNameOfEveryLayer) {
  std::vector<Tensor> tensors;
  for (const char* name : {"blocks.1.cross_attn.o", "blocks.1.ffn.2", "head.head", "patch_embedding",
                           "time_projection.1", "text_embedding.0", "time_embedding.2", "blocks.0.norm3"})
    tensors.push_back({"diffusion_model." + std::string(name) + ".diff_b", {1}});
  tensors.push_back({"diffusion_model.blocks.0.diff_m", {1}});
  // Every layer is found; only the shapes are wrong.
  EXPECT_TRUE(does_not_fit(
      "wan/pipeline", write(tensors).string(),
      {"9 with another shape", "\"blocks.1.attn2.to_out.0.bias\" is [32]", "\"blocks.1.ffn.net.2.bias\"",
       "\"proj_out.bias\"", "\"patch_embedding.bias\"", "\"condition_embedder.time_proj.bias\" is [192]",
       "\"condition_embedder.text_embedder.linear_1.bias\"", "\"condition_embedder.time_embedder.linear_2.bias\"",
       "\"blocks.0.norm2.bias\"", "\"blocks.0.scale_shift_table\" is [1, 6, 32]"}));
}

TEST_F(Lora, MultipliesScalesAndOmitsZero) {
  const std::string file = (kData / "lora/metadata.safetensors").string();
  const WeightDeltas deltas = added("pipeline", file + ":0.5", "transformer");
  EXPECT_EQ(deltas.size(), 8U);
  EXPECT_EQ(deltas.at("transformer_blocks.0.attn1.to_q.weight").at(0).scale, 0.5 * 6 / 4);
  EXPECT_EQ(deltas.at("transformer_blocks.0.attn1.to_v.weight").at(0).scale, 0.5 * 3 / 4);
  EXPECT_TRUE(added("pipeline", file + ":0", "transformer").empty());
  EXPECT_EQ(added("pipeline", file + "," + file, "transformer").at("transformer_blocks.0.attn1.to_q.weight").size(),
            2U);
}

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
    std::vector<Tensor> tensors;
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

TEST_F(Lora, ListsLayersThatTheModelLacksOnce) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 25; ++i) {
    const std::string layer = "transformer.transformer_blocks." + std::to_string(10 + i) + ".attn1.to_q";
    tensors.push_back({layer + ".lora_A.weight", {1, 32}});
    tensors.push_back({layer + ".lora_B.weight", {32, 1}});
  }
  EXPECT_TRUE(does_not_fit("pipeline", write(tensors).string(),
                           {"a.safetensors", "it was made for 35 blocks, but this transformer has 2",
                            "25 layers that this model does not have", "transformer_blocks.29.attn1.to_q", ", ..."}));
}

std::vector<Tensor> image_to_video(const std::vector<Tensor>& others) {
  std::vector<Tensor> all = {{"diffusion_model.patch_embedding.diff", {32, 36, 1, 2, 2}},
                             {"diffusion_model.blocks.0.cross_attn.norm_k_img.diff", {32}},
                             {"diffusion_model.img_emb.proj.1.diff_b", {32}}};
  for (const char* layer : {"k_img", "v_img"}) {
    const std::string name = "diffusion_model.blocks.1.cross_attn." + std::string(layer);
    all.push_back({name + ".lora_down.weight", {2, 32}});
    all.push_back({name + ".lora_up.weight", {32, 2}});
    all.push_back({name + ".alpha", {}});
  }
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

TEST_F(Lora, OmitsImageLayersWithAWarning) {
  const std::string query = "diffusion_model.blocks.0.self_attn.q";
  const fs::path file = write(image_to_video({{query + ".lora_down.weight", {2, 32}},
                                              {query + ".lora_up.weight", {32, 2}},
                                              {"diffusion_model.head.head.diff_b", {16}}}));
  const std::vector<std::string> warned = warnings("wan/pipeline", file);
  ASSERT_EQ(warned.size(), 1U);
  for (const char* part :
       {"a.safetensors: left out: 4 layers that this model does not have: ", "cross_attn.k_img.lora_up",
        "cross_attn.v_img.lora_up", "norm_k_img.diff", "img_emb.proj.1.diff_b",
        "1 with other input channels: \"diffusion_model.patch_embedding.diff\" is for [32, 36, 1, 2, 2]"})
    EXPECT_NE(warned[0].find(part), std::string::npos) << part << "\n" << warned[0];
  const WeightDeltas deltas = added("wan/pipeline", file.string(), "transformer");
  EXPECT_EQ(deltas.size(), 2U);
  EXPECT_EQ(deltas.count("blocks.0.attn1.to_q.weight"), 1U);
  EXPECT_TRUE(throws_error([&] { warnings("wan/pipeline", file, /*strict=*/true); },
                           {"does not fit this model", "4 layers", "other input channels"}));
}

TEST_F(Lora, TreatsConvolutionLayersAsMatrices) {
  const std::string patches = "diffusion_model.patch_embedding";
  using Axes = std::vector<int64_t>;
  for (const auto& [down, up] : {std::pair<Axes, Axes>{{2, 4, 1, 2, 2}, {32, 2, 1, 1, 1}},
                                 {{2, 16}, {32, 2}},
                                 {{2, 4, 1, 2, 2}, {32, 2}},
                                 {{2, 16, 1, 1}, {32, 2, 1, 1}}}) {
    const fs::path file = write({{patches + ".lora_A.weight", down}, {patches + ".lora_B.weight", up}});
    EXPECT_TRUE(warnings("wan/pipeline", file, /*strict=*/true).empty());
    const WeightDeltas deltas = added("wan/pipeline", file.string(), "transformer");
    const WeightDelta& delta = deltas.at("patch_embedding.weight").at(0);
    EXPECT_EQ(delta.up->shape, (Axes{32, 2}));
    EXPECT_EQ(delta.down->shape, (Axes{2, 16}));
    EXPECT_EQ(delta.down->bytes, size_t{2 * 16 * 4});
  }
}

TEST_F(Lora, TreatsEveryPatchEmbeddingAsAMatrix) {
  for (const auto& [model, layer] : {std::pair("pipeline", "patch_embed.proj"),
                                     {"cogvideox_i2v/pipeline", "patch_embed.proj"},
                                     {"mochi/pipeline", "patch_embed.proj"},
                                     {"wan_i2v/pipeline", "patch_embedding"},
                                     {"wan/pipeline_5b", "patch_embedding"}}) {
    const std::string name = layer;
    std::vector<int64_t> down =
        Checkpoint::open(kData / model).component("transformer").tensors.at(name + ".weight").second->shape;
    std::vector<int64_t> up(down.size(), 1);
    up[0] = std::exchange(down[0], 2);
    up[1] = 2;
    const fs::path file =
        write({{"transformer." + name + ".lora_A.weight", down}, {"transformer." + name + ".lora_B.weight", up}});
    EXPECT_TRUE(warnings(model, file, /*strict=*/true).empty()) << model;
    EXPECT_EQ(added(model, file.string(), "transformer").count(name + ".weight"), 1U) << model;
  }
}

TEST_F(Lora, OmitsConvolutionsOfOtherChannelsWithAWarning) {
  const std::string query = "diffusion_model.blocks.0.self_attn.q", patches = "diffusion_model.patch_embedding";
  const std::vector<Tensor> others = {{query + ".lora_A.weight", {2, 32}}, {query + ".lora_B.weight", {32, 2}}};
  using Axes = std::vector<int64_t>;
  const auto both = [&](const Axes& down, const Axes& up) {
    std::vector<Tensor> all = {{patches + ".lora_A.weight", down}, {patches + ".lora_B.weight", up}};
    all.insert(all.end(), others.begin(), others.end());
    return write(all);
  };
  const auto expect_left_out = [&](const fs::path& file, const std::string& words) {
    for (const char* model : {"wan/pipeline", "wan/pipeline_two_experts"})
      EXPECT_THAT(warnings(model, file), ElementsAre(testing::HasSubstr(": left out: 1 " + words))) << model;
    EXPECT_EQ(added("wan/pipeline", file.string(), "transformer").size(), 1U);
    EXPECT_TRUE(throws_error([&] { warnings("wan/pipeline", file, /*strict=*/true); }, {words}));
  };
  expect_left_out(both({2, 36, 1, 2, 2}, {32, 2, 1, 1, 1}),
                  "with other input channels: \"" + patches + ".lora_B.weight\"");
  expect_left_out(both({2, 144}, {32, 2}), "with other input channels: \"" + patches + ".lora_B.weight\"");
  expect_left_out(both({2, 4, 1, 1, 1}, {32, 2, 1, 2, 2}), "for convolutions with a kernel in B");
  EXPECT_TRUE(does_not_fit("wan/pipeline", both({2, 4, 1, 2, 2}, {31, 2}).string(), {"1 with another shape"}));
  EXPECT_TRUE(does_not_fit("wan/pipeline", both({2, 63}, {32, 2}).string(), {"1 with another shape"}));
}

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
  const std::vector<Tensor> pair = {{query + ".lora_A.weight", {2, 32}}, {query + ".lora_B.weight", {32, 2}}};
  const std::vector<std::string> warned = warnings("wan/pipeline", write(pair));
  ASSERT_EQ(warned.size(), 1U);
  EXPECT_NE(warned[0].find("a.safetensors: has PEFT's names but no alpha, so alpha is taken to be the rank"),
            std::string::npos)
      << warned[0];
  std::vector<Tensor> with_alpha = pair;
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
  const Tensor down{kQuery + ".lora_A.weight", {2, 32}}, up{kQuery + ".lora_B.weight", {32, 2}};
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
  const Tensor down{kQuery + ".lora_A.weight", {2, 32}}, up{kQuery + ".lora_B.weight", {32, 2}};
  for (const float alpha : {INFINITY, -INFINITY, NAN})
    EXPECT_TRUE(refused({down, up, {kQuery + ".alpha", {}, alpha}}, {kQuery + ".alpha", "not a single finite number"}));
  EXPECT_TRUE(refused({down, up, {kQuery + ".alpha", {2}}}, {"not a single finite number"}));
  const auto metadata = [](const char* text) {
    return std::map<std::string, std::string>{{"lora_adapter_metadata", text}};
  };
  EXPECT_TRUE(
      refused({down, up}, {"lora_alpha is not a finite number"}, metadata(R"({"transformer.lora_alpha": "8"})")));
  EXPECT_TRUE(refused({down, up}, {"lora_alpha is not a finite number that a float holds"},
                      metadata(R"({"transformer.lora_alpha": 1e300})")));
  EXPECT_TRUE(refused({down, up}, {"alpha_pattern", "regular expression"},
                      metadata(R"({"transformer.alpha_pattern": {"to_(": 2}})")));
  EXPECT_TRUE(refused({down, up}, {"lora_adapter_metadata"}, metadata("{")));
  EXPECT_TRUE(refused({down, up}, {"not a JSON object"}, metadata("[1]")));
}

TEST_F(Lora, RefusesOtherAdaptersByName) {
  const Tensor down{kQuery + ".lora_A.weight", {2, 32}}, up{kQuery + ".lora_B.weight", {32, 2}};
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

TEST_F(Lora, RecognizesFamilyAndNamingOfAFile) {
  const auto origin = [](const char* file) { return origin_of(read_lora(kData / file)); };
  const LoraOrigin metadata = origin("lora/metadata.safetensors"), original = origin("wan/lora/original.safetensors");
  EXPECT_EQ(metadata.family->name, "CogVideoX");
  EXPECT_EQ(metadata.naming, "diffusers");
  EXPECT_EQ(metadata.width, 32);
  EXPECT_EQ(metadata.blocks, 2);
  EXPECT_EQ(original.family->name, "Wan");
  EXPECT_EQ(original.naming, "original");
  EXPECT_EQ(origin("wan/lora/kohya.safetensors").naming, "kohya");
  EXPECT_EQ(origin("wan/lora/kohya.safetensors").family->name, "Wan");
  EXPECT_EQ(origin("wan/lora/kohya.safetensors").width, 32);
}

TEST_F(Lora, NamesOnlyLayersThatCheckpointsHave) {
  for (const char* model : {"pipeline", "wan_i2v/pipeline"}) {  // image-to-video has all layers of text-to-video
    const Checkpoint folder = Checkpoint::open(kData / model);
    const LoraNames& names = find_family(folder.pipeline_class())->lora;
    for (const std::string& layer : names.layers)
      EXPECT_TRUE(folder.component("transformer").tensors.contains(names.blocks + "1." + layer + ".weight")) << layer;
  }
}

TEST_F(Lora, HashesTheWholeFile) {
  const fs::path file = write({{kQuery + ".diff", {1}, 1}});
  const std::string one = hash_of({{.file = file}});
  EXPECT_EQ(one.size(), 64U);
  EXPECT_EQ(hash_of({{.file = file}, {.file = file, .scale = 0}}), one + "," + one);
  write({{kQuery + ".diff", {1}, 2}});
  EXPECT_NE(hash_of({{.file = file}}), one);
}

TEST_F(Lora, IncludesTheAdapterConfigInTheHash) {
  const fs::path file = folder_ / "adapter_model.safetensors", config = folder_ / "adapter_config.json";
  fs::rename(write({{kQuery + ".diff", {1}, 1}}), file);
  const std::string plain = hash_of({{.file = file}});
  test::write_text(config, R"({"lora_alpha": 1})");
  const std::string one = hash_of({{.file = file}});
  test::write_text(config, R"({"lora_alpha": 2})");
  const std::string two = hash_of({{.file = file}});
  EXPECT_EQ(one.size(), 64U);
  EXPECT_NE(one, plain);
  EXPECT_NE(one, two);
  EXPECT_NE(two, plain);
}

}  // namespace
}  // namespace sparsereel::models
