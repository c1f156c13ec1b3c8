// Tests that models are recognized by the names and shapes of tensors in their files. The files' data are holes.
#include "models/store/configs/model_of_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/families/wan/family.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::throws_error;
using Configs = std::map<std::string, std::vector<fs::path>>;
using Spelling = std::function<std::string(const std::string&)>;

const fs::path kConfigFolder = fs::path(SPARSEREEL_SOURCE_DIR) / "configs";

std::string as_diffusers(const std::string& name) {
  return name;
}

json published(const std::string& list) {
  std::ifstream file(SPARSEREEL_TEST_DATA "/" + list);
  return json::parse(file);
}

/// Returns {name: shape} of all tensors. `listed` has every tensor under "tensors", or one layer under "block", which
/// is repeated with the prefix `blocks`, and all other tensors under "rest".
json tensors_of(const json& listed, const std::string& blocks) {
  json tensors = listed.contains("rest") ? listed["rest"] : listed["tensors"];
  if (!listed.contains("block")) return tensors;
  const int64_t alike = listed.value("blocks", listed["config"]["num_layers"].get<int64_t>());
  for (int64_t i = 0; i < alike; ++i)
    for (const auto& [name, shape] : listed["block"].items()) tensors[blocks + std::to_string(i) + "." + name] = shape;
  return tensors;
}

class PublishedFiles : public ::testing::Test {
 protected:
  /// Writes a file of F8_E4M3 tensors whose data is a hole. `spelled` renames the tensors.
  fs::path write(const std::string& name, const json& tensors, const Spelling& spelled = as_diffusers) const {
    json header;
    uint64_t end = 0;
    for (const auto& [tensor, shape] : tensors.items()) {
      uint64_t bytes = 1;
      for (const auto& size : shape) bytes *= size.get<uint64_t>();
      header[spelled(tensor)] = {{"dtype", "F8_E4M3"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
      end += bytes;
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    test::write_text(path, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text);
    fs::resize_file(path, sizeof length + length + end);
    return path;
  }
  fs::path write_wan(const std::string& name, const std::string& model, const Spelling& spelled) const {
    return write(name, tensors_of(published("wan/dit_names.json")[model], "blocks."), spelled);
  }
  static Spelling authors(const StoredNames& names, const std::string& prefix = {}, size_t map = 0) {
    return [names, prefix, map](const std::string& name) { return prefix + names.others.at(map).second(name); };
  }
  /// Writes the files of the VAE, the text encoder and the tokenizer.
  void write_rest(const std::string& vae, size_t map) const {
    write("vae/vae.safetensors", published("wan/vae_names.json")[vae]["rest"], authors(wan_vae_part().names, "", map));
    write("text_encoders/umt5.safetensors", published("umt5_names.json")["tensors"]);
    test::write_text(folder_ / "text_encoders" / "spiece.model", "");
  }
  static Configs of(const std::string& role, const std::vector<std::string>& files) {
    Configs configs;
    for (const std::string& name : files) configs[role].push_back(kConfigFolder / (name + ".yaml"));
    return configs;
  }
  std::string model() const { return open_model(folder_.path(), {}, kConfigFolder).index_file().stem().string(); }

  test::TemporaryFolder folder_;
};

TEST_F(PublishedFiles, AreRecognizedByTheirTensors) {
  const auto is = [&](const fs::path& file, const Configs& configs) {
    SCOPED_TRACE(file);
    EXPECT_EQ(models_of_file(kConfigFolder, file), configs);
  };
  const StoredNames names = wan_transformer_part().names;
  for (const auto& spelled : {Spelling(as_diffusers), authors(names), authors(names, "net.")}) {
    is(write_wan("a", "2.1 1.3b", spelled), of("transformer", {"wan-2.1-1.3b"}));
    is(write_wan("a", "2.1 14b", spelled), of("transformer", {"wan-2.1-14b", "wan-2.2-a14b"}));
    is(write_wan("a", "2.2 5b", spelled), of("transformer", {"wan-2.2-5b"}));
    const json of_pictures = published("wan_i2v/dit_names.json");
    for (const auto& [model, config] : {std::pair{"2.1 i2v 14b", "wan-2.1-i2v-14b"},
                                        {"2.1 flf2v 14b", "wan-2.1-flf2v-14b-720p"},
                                        {"2.2 i2v a14b", "wan-2.2-i2v-a14b"}})
      is(write("a", tensors_of(of_pictures[model], "blocks."), spelled), of("transformer", {config}));
  }
  const json vaes = published("wan/vae_names.json"), cogvideox = published("dit_names.json");
  const std::vector<std::string> older = {"wan-2.1-1.3b",    "wan-2.1-14b",  "wan-2.1-flf2v-14b-720p",
                                          "wan-2.1-i2v-14b", "wan-2.2-a14b", "wan-2.2-i2v-a14b"};
  is(write("a", vaes["2.1"]["rest"], authors(wan_vae_part().names)), of("vae", older));
  is(write("a", vaes["2.2 5b"]["rest"], authors(wan_vae_part().names, "vae.", 1)), of("vae", {"wan-2.2-5b"}));
  const std::pair<const char*, const char*> transformers[] = {
      {"2b", "cogvideox-2b"}, {"5b", "cogvideox-5b"}, {"1.5-5b", "cogvideox-1.5-5b"}};
  for (const auto& [model, config] : transformers)
    is(write("a", tensors_of(cogvideox[model], "transformer_blocks.")), of("transformer", {config}));
  const json of_images = published("cogvideox_i2v/dit_names.json");
  for (const auto& [model, listed] : of_images.items())
    is(write("a", tensors_of(listed, "transformer_blocks.")), of("transformer", {"cogvideox-" + model}));
  is(write("a", published("umt5_names.json")["tensors"]),
     of("text_encoder", {"wan-2.1-1.3b", "wan-2.1-14b", "wan-2.1-flf2v-14b-720p", "wan-2.1-i2v-14b", "wan-2.2-5b",
                         "wan-2.2-a14b", "wan-2.2-i2v-a14b"}));
  is(write("a", published("t5_names.json")["tensors"]),
     of("text_encoder",
        {"cogvideox-1.5-5b-i2v", "cogvideox-1.5-5b", "cogvideox-2b", "cogvideox-5b-i2v", "cogvideox-5b", "mochi-1"}));
  is(write("a", tensors_of(published("mochi/dit_names.json")["1 preview"], "transformer_blocks.")),
     of("transformer", {"mochi-1"}));
  is(write("a", published("mochi/vae_names.json")["1 preview"]["rest"]), of("vae", {"mochi-1"}));
  is(write("a", tensors_of(published("open_sora_plan/dit_names.json")["1.2.0"], "transformer_blocks.")),
     of("transformer", {"open-sora-plan-1.2"}));
  is(write("a", published("open_sora_plan/vae_names.json")["1.2.0"]["rest"]), of("vae", {"open-sora-plan-1.2"}));
  is(SPARSEREEL_TEST_DATA "/vae_small/diffusion_pytorch_model.safetensors", {});
}

TEST_F(PublishedFiles, DistinguishWan21AndWan22ByTheNumberOfTransformers) {
  const Spelling spelled = authors(wan_transformer_part().names);
  write_rest("2.1", 0);
  const fs::path plain = write_wan("diffusion_models/wan2.1_t2v_14B_fp8_e4m3fn.safetensors", "2.1 14b", spelled);
  EXPECT_EQ(model(), "wan-2.1-14b");
  fs::remove(plain);
  const fs::path high = write_wan("unet/wan2.2_t2v_high_noise_14B_fp8_scaled.safetensors", "2.1 14b", spelled);
  EXPECT_TRUE(
      throws_error([&] { model(); }, {"high_noise_14B", "for high noise, but the other transformer is missing"}));
  write_wan("unet/Wan2_2-T2V-A14B-LOW_fp8_e4m3fn_scaled_KJ.safetensors", "2.1 14b", spelled);
  const Checkpoint two = open_model(folder_.path(), {}, kConfigFolder);
  EXPECT_EQ(two.index_file().stem(), "wan-2.2-a14b");
  EXPECT_EQ(two.component("transformer").origin, high);
  EXPECT_EQ(two.setting("boundary_ratio"), 0.875);
  EXPECT_EQ(two.config("vae")["latents_mean"].size(), 16U);
  EXPECT_EQ(two.tokenizer()->path, folder_ / "text_encoders");
  write_wan("wan2.1_t2v_14B.safetensors", "2.1 14b", spelled);
  try {
    model();
    ADD_FAILURE() << "one of two models was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), folder_.path().string() + ": could be run in 2 ways");
    ASSERT_EQ(error.choices().size(), 2U);
    EXPECT_EQ(error.choices()[0].group, "wan-2.1-14b");
    EXPECT_EQ(error.choices()[1].group, "wan-2.2-a14b");
    EXPECT_EQ(error.choices()[1].values.size(), 2U);
    EXPECT_EQ(error.choices()[1].values.front(), std::pair(std::string("transformer"), high.string()));
  }
  EXPECT_EQ(open_model(folder_.path(), {{"transformer", high}}, kConfigFolder).index_file().stem(), "wan-2.2-a14b");
}

TEST_F(PublishedFiles, RequireTheMatchingVaeForTheSmallWan22) {
  const Spelling spelled = authors(wan_transformer_part().names, "model.diffusion_model.");
  write_wan("checkpoints/wan2.2_ti2v_5B.safetensors", "2.2 5b", spelled);
  write_rest("2.1", 0);
  EXPECT_TRUE(throws_error([&] { model(); }, {"wan2.2_ti2v_5B", "is the transformer of wan-2.2-5b", "vae is missing",
                                              "of another model: ", "vae.safetensors (", "z_dim 16"}));
  write_rest("2.2 5b", 1);
  EXPECT_EQ(model(), "wan-2.2-5b");
}

TEST_F(PublishedFiles, IgnoreTextEncodersOfOtherModels) {
  write_rest("2.1", 0);
  write_wan("wan2.1_t2v_1.3B.safetensors", "2.1 1.3b", authors(wan_transformer_part().names));
  write("clip/t5xxl.safetensors", published("t5_names.json")["tensors"]);
  EXPECT_EQ(model(), "wan-2.1-1.3b");
  fs::remove(folder_ / "text_encoders" / "umt5.safetensors");
  EXPECT_TRUE(throws_error([&] { model(); }, {"text_encoder is missing", "t5xxl.safetensors (", "vocab_size 32128"}));
}

TEST_F(PublishedFiles, UseAConfigNextToTheWeights) {
  write_rest("2.1", 0);
  write_wan("wan2.1_t2v_1.3B.safetensors", "2.1 1.3b", authors(wan_transformer_part().names));
  const auto opened = [&] { return open_model(folder_.path(), {}, kConfigFolder); };
  const json known = opened().config("transformer");
  json other = known;
  other["_class_name"] = "WanTransformer3DModel";
  other["rope_max_seq_len"] = 512;
  const fs::path file = folder_ / "config.json";
  test::write_text(file, other.dump());
  std::string named;
  EXPECT_EQ(opened().config("transformer", &named), other);
  EXPECT_EQ(named, file);
  EXPECT_EQ(opened().component("transformer").config, other);
  EXPECT_THAT(opened().places(), ::testing::Contains(file));
  EXPECT_EQ(opened().config("vae", &named)["latents_mean"].size(), 16U);
  EXPECT_NE(named, file);
  for (const json& name : {json("WanModel"), json("AutoencoderKLWan"), json(1), json()}) {
    other["_class_name"] = name;
    test::write_text(file, other.dump());
    EXPECT_EQ(opened().config("transformer"), known) << name;
  }
  other["_class_name"] = "WanTransformer3DModel";
  other["num_layers"] = 29;
  test::write_text(file, other.dump());
  EXPECT_TRUE(throws_error([&] { opened(); }, {"does not fit", file.string(), "num_layers is 30, not 29"}));
}

TEST_F(PublishedFiles, RecognizeExpertsOnlyBySeparateWords) {
  const Spelling spelled = authors(wan_transformer_part().names);
  write_rest("2.1", 0);
  for (const char* name :
       {"wan-highres.safetensors", "wan_lower.safetensors", "wanhigh.safetensors", "shallow.safetensors"}) {
    const fs::path file = write_wan(name, "2.1 14b", spelled);
    EXPECT_EQ(model(), "wan-2.1-14b") << name;
    fs::remove(file);
  }
}

}  // namespace
}  // namespace sparsereel::models
