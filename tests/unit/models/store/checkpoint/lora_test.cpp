// Tests which LoRA files can be read, and which weights of a checkpoint they change.
#include "models/store/checkpoint/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "models/store/checkpoint/describe.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/models/store/checkpoint/lora_fixture.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::throws_error;
using ::testing::ElementsAre;

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
  const std::vector<LoraTensor> pair = {{kQuery + ".lora_A.weight", {4, 8}}, {kQuery + ".lora_B.weight", {8, 4}}};
  EXPECT_EQ(read_lora(write(pair)).layers.at(0).strength, 1);
  std::vector<LoraTensor> with_alpha = pair;
  with_alpha.push_back({kQuery + ".alpha", {}, 2});
  EXPECT_EQ(read_lora(write(with_alpha)).layers.at(0).strength, 0.5);
  const auto strength = [&](const std::string& metadata, const std::vector<LoraTensor>& tensors) {
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
                      {"kwargs: qkv_proj_lora_alpha is null, not a finite 32-bit number"},
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
        // Training programs, torch.compile and pipelines add such prefixes and words to the names.
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
  std::vector<LoraTensor> tensors;
  for (const char* name : {"blocks.1.cross_attn.o", "blocks.1.ffn.2", "head.head", "patch_embedding",
                           "time_projection.1", "text_embedding.0", "time_embedding.2", "blocks.0.norm3"})
    tensors.push_back({"diffusion_model." + std::string(name) + ".diff_b", {1}});
  tensors.push_back({"diffusion_model.blocks.0.diff_m", {1}});
  // The error names every layer as one with a wrong shape, which shows that each name was understood.
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

TEST_F(Lora, ListsLayersThatTheModelLacksOnce) {
  std::vector<LoraTensor> tensors;
  for (int i = 0; i < 25; ++i) {
    const std::string layer = "transformer.transformer_blocks." + std::to_string(10 + i) + ".attn1.to_q";
    tensors.push_back({layer + ".lora_A.weight", {1, 32}});
    tensors.push_back({layer + ".lora_B.weight", {32, 1}});
  }
  EXPECT_TRUE(does_not_fit("pipeline", write(tensors).string(),
                           {"a.safetensors", "it was made for 35 blocks, but this transformer has 2",
                            "25 layers that this model does not have", "transformer_blocks.29.attn1.to_q", ", ..."}));
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
  const std::vector<LoraTensor> others = {{query + ".lora_A.weight", {2, 32}}, {query + ".lora_B.weight", {32, 2}}};
  using Axes = std::vector<int64_t>;
  const auto both = [&](const Axes& down, const Axes& up) {
    std::vector<LoraTensor> all = {{patches + ".lora_A.weight", down}, {patches + ".lora_B.weight", up}};
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
  // Image-to-video models have all layers of text-to-video models, and more.
  for (const char* model : {"pipeline", "wan_i2v/pipeline"}) {
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
