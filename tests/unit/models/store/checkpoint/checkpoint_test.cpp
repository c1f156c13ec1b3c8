// Tests that a checkpoint folder opens, or that one error tells everything that is wrong and in which file.
#include "models/store/checkpoint/checkpoint.h"

#include <functional>
#include <iterator>

#include "models/files/json_text.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::TemporaryFolder;
using test::throws_error;
using test::write_text;

constexpr const char* kIndex = "transformer/diffusion_pytorch_model.safetensors.index.json";

/// Makes a copy of the test pipeline, which a test can damage.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    fs::copy(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", folder_.path(), fs::copy_options::recursive);
  }

  Checkpoint open() const { return Checkpoint::open(folder_.path()); }
  void edit(const std::string& file, const std::function<void(json&)>& change) const {
    json content = read_json(folder_ / file);
    change(content);
    write_text(folder_ / file, content.dump());
  }
  ::testing::AssertionResult opening_fails(const std::vector<std::string>& parts) const {
    return throws_error([&] { open(); }, parts);
  }
  ::testing::AssertionResult transformer_fails(const std::vector<std::string>& parts) const {
    return throws_error([&] { open().component("transformer"); }, parts);
  }

  TemporaryFolder folder_;
};

TEST_F(CheckpointTest, OpensShardsAndSingleFiles) {
  const Checkpoint model = open();
  EXPECT_EQ(model.pipeline_class(), "CogVideoXPipeline");
  const Component transformer = model.component("transformer");
  EXPECT_EQ(transformer.class_name, "CogVideoXTransformer3DModel");
  EXPECT_EQ(transformer.files.size(), 2U);
  const Component vae = model.component("vae");
  EXPECT_EQ(vae.files.size(), 1U);
  EXPECT_EQ(model.component("text_encoder").files[0]->path().filename(), "model.safetensors");

  uint64_t parameters = 0;
  for (const auto& [name, place] : transformer.tensors) {
    EXPECT_EQ(transformer.files[place.first]->find(name), place.second);
    uint64_t count = 1;
    for (const int64_t size : place.second->shape) count *= static_cast<uint64_t>(size);
    parameters += count;
  }
  EXPECT_EQ(transformer.parameter_count(), parameters);
  EXPECT_EQ(transformer.bytes(), read_json(folder_ / kIndex)["metadata"]["total_size"].get<uint64_t>());
}

TEST_F(CheckpointTest, RefusesAMissingFolder) {
  EXPECT_TRUE(throws_error([&] { Checkpoint::open(folder_ / "nowhere"); }, {"nowhere", "no file or folder"}));
}

TEST_F(CheckpointTest, RefusesAMissingModelIndex) {
  fs::remove(folder_ / "model_index.json");
  EXPECT_TRUE(opening_fails({"model_index.json", "no such file"}));
}

TEST_F(CheckpointTest, NamesTheLineOfAMalformedModelIndex) {
  write_text(folder_ / "model_index.json", "{\n \"_class_name\": \n}");
  EXPECT_TRUE(opening_fails({"model_index.json", "line 3"}));
  write_text(folder_ / "model_index.json", "[]");
  EXPECT_TRUE(opening_fails({"model_index.json", "not a JSON object"}));
  write_text(folder_ / "model_index.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_TRUE(opening_fails({"model_index.json", "Git LFS pointer"}));
  write_text(folder_ / "model_index.json", "");
  EXPECT_TRUE(opening_fails({"model_index.json"}));
}

TEST_F(CheckpointTest, RefusesAnUnsupportedPipeline) {
  edit("model_index.json", [](json& index) { index["_class_name"] = "AllegroPipeline"; });
  EXPECT_TRUE(opening_fails({"model_index.json", "_class_name", "\"AllegroPipeline\" is not supported"}));
  edit("model_index.json", [](json& index) { index["_class_name"] = 1; });
  EXPECT_TRUE(opening_fails({"model_index.json", "_class_name"}));
}

TEST_F(CheckpointTest, RefusesAnUnsupportedOrMissingComponent) {
  edit("model_index.json", [](json& index) { index["scheduler"][1] = "EulerDiscreteScheduler"; });
  EXPECT_TRUE(opening_fails({"model_index.json", "scheduler", "\"EulerDiscreteScheduler\" is not supported"}));
  edit("model_index.json", [](json& index) { index["scheduler"] = {nullptr, nullptr}; });
  EXPECT_TRUE(opening_fails({"model_index.json", "scheduler", "pair"}));
  edit("model_index.json", [](json& index) { index.erase("scheduler"); });
  EXPECT_TRUE(opening_fails({"model_index.json", "\"scheduler\""}));
}

TEST_F(CheckpointTest, SupportsFastTokenizerAndDpmScheduler) {
  edit("model_index.json", [](json& index) {
    index["tokenizer"][1] = "T5TokenizerFast";
    index["scheduler"][1] = "CogVideoXDPMScheduler";
  });
  EXPECT_EQ(open().component_class("tokenizer"), "T5TokenizerFast");
  EXPECT_EQ(open().config("scheduler")["_class_name"], "CogVideoXDPMScheduler")
      << "model_index.json names the class, as in diffusers";
}

TEST_F(CheckpointTest, RefusesAnUnknownComponentName) {
  EXPECT_TRUE(throws_error([&] { open().component("unet"); }, {"model_index.json", "\"unet\""}));
}

TEST_F(CheckpointTest, RefusesAMissingConfig) {
  fs::remove(folder_ / "transformer/config.json");
  EXPECT_TRUE(transformer_fails({"transformer/config.json", "no such file"}));
}

TEST_F(CheckpointTest, NamesAMissingShard) {
  fs::remove(folder_ / "transformer/diffusion_pytorch_model-00002-of-00002.safetensors");
  EXPECT_TRUE(transformer_fails({kIndex, "missing shards (1)", "diffusion_pytorch_model-00002-of-00002.safetensors"}));
}

TEST_F(CheckpointTest, FindsTensorsInShardsDespiteAWrongIndex) {
  const TensorTable whole = open().component("transformer").tensors;
  edit(kIndex, [&](json& index) {
    json& map = index["weight_map"];
    const std::string moved = map.begin().key(), dropped = std::next(map.begin()).key(), shard = map[moved];
    map[moved] = std::string("diffusion_pytorch_model-0000") +
                 (shard.find("00001-of") == std::string::npos ? "1" : "2") + "-of-00002.safetensors";
    map.erase(dropped);
    map["invented.weight"] = shard;
  });
  const Checkpoint model = open();
  const TensorTable& found = model.component("transformer").tensors;
  ASSERT_EQ(found.size(), whole.size());
  for (const auto& [name, place] : whole) EXPECT_EQ(found.at(name).first, place.first) << name;
}

TEST_F(CheckpointTest, CountsAllMissingShards) {
  edit(kIndex, [&](json& index) {
    for (int i = 0; i < 1000; ++i)
      index["weight_map"]["a"] = index["weight_map"]["b" + std::to_string(i)] = "lost" + std::to_string(i);
  });
  EXPECT_TRUE(transformer_fails({kIndex, "missing shards (1000): \"lost0\"", ", ..."}));
}

/// Tests weights in several files. write() writes a file with a tensor "w" and a tensor named after the file, whose
/// bytes are `value`.
class SplitFiles : public ::testing::Test {
 protected:
  void write(const std::string& name, char value, bool with_w = true) const {
    const std::string data(4, value);
    std::vector<TensorView> tensors = {{"of " + name, Dtype::u8, {4}, std::as_bytes(std::span(data))}};
    if (with_w) tensors.push_back({"w", Dtype::u8, {4}, std::as_bytes(std::span(data))});
    write_safetensors(folder_ / name, tensors);
  }
  TemporaryFolder folder_;
};

TEST_F(SplitFiles, UseTheIndexForATensorInTwoShards) {
  write("a.safetensors", 1);
  write("b.safetensors", 2);
  const auto value_by = [&](const json& map) {
    write_text(folder_ / "x.index.json", json{{"weight_map", map}}.dump());
    const StoredWeights weights = open_weights(folder_ / "x.index.json");
    EXPECT_EQ(weights.tensors.size(), 3U);
    const auto& [file, entry] = weights.tensors.at("w");
    return static_cast<int>(weights.files[file]->data(*entry)[0]);
  };
  const json both = {{"of a.safetensors", "a.safetensors"}, {"of b.safetensors", "b.safetensors"}};
  for (const auto& [shard, value] : {std::pair("a.safetensors", 1), {"b.safetensors", 2}}) {
    json map = both;
    map["w"] = shard;
    EXPECT_EQ(value_by(map), value);
  }
  EXPECT_TRUE(throws_error([&] { value_by(both); },
                           {"x.index.json", "tensors in two shards (1): \"w\" in a.safetensors and b.safetensors"}));
}

TEST_F(SplitFiles, FindPartsByTheirNames) {
  for (int i = 1; i <= 3; ++i) write("w-0000" + std::to_string(i) + "-of-00003.safetensors", 1, i == 2);
  for (int i = 1; i <= 3; ++i) {
    const StoredWeights weights = open_weights(folder_ / ("w-0000" + std::to_string(i) + "-of-00003.safetensors"));
    EXPECT_EQ(weights.files.size(), 3U);
    EXPECT_EQ(weights.tensors.size(), 4U);
  }
  fs::remove(folder_ / "w-00003-of-00003.safetensors");
  EXPECT_TRUE(throws_error(
      [&] { open_weights(folder_ / "w-00001-of-00003.safetensors"); },
      {"w-00001-of-00003.safetensors, part 1 of 3,", "missing parts (1): \"w-00003-of-00003.safetensors\""}));
  write("w-00003-of-00003.safetensors", 1);
  EXPECT_TRUE(
      throws_error([&] { open_weights(folder_ / "w-00001-of-00003.safetensors"); }, {"tensors in two shards (1)"}));
}

TEST(PartNames, MatchOnlySplitFiles) {
  const auto part = part_name("/models/wan-Q8-02-of-10.gguf");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->number, 2U);
  EXPECT_EQ(part->of(2), "wan-Q8-02-of-10.gguf");
  EXPECT_EQ(part->of(10), "wan-Q8-10-of-10.gguf");
  for (const char* whole : {"wan.gguf", "wan-00001-of-00001.gguf", "wan-00003-of-00002.gguf", "wan-0-of-2.gguf",
                            "-00001-of-00002.gguf", "wan-00001-of-00002", "a-1-of-9999999.gguf"})
    EXPECT_FALSE(part_name(whole)) << whole;
}

TEST_F(CheckpointTest, RefusesAnIndexWithWrongTypes) {
  const auto fails = [&](const json& content, const std::vector<std::string>& parts) {
    write_text(folder_ / kIndex, content.dump());
    return transformer_fails(parts);
  };
  EXPECT_TRUE(fails(json::array(), {kIndex, "not a JSON object"}));
  EXPECT_TRUE(fails({{"weight_map", 1}}, {kIndex, "weight_map"}));
  EXPECT_TRUE(fails({{"weight_map", json::object()}}, {kIndex, "weight_map is empty"}));
  EXPECT_TRUE(fails({{"weight_map", {{"a", 1}}}}, {kIndex, "\"a\"", "not a file name"}));
  EXPECT_TRUE(fails({{"weight_map", {{"a", "../vae/x.safetensors"}}}}, {kIndex, "\"a\"", "../vae/x.safetensors"}));
  EXPECT_TRUE(fails({{"weight_map", {{"a", "/etc/passwd"}}}}, {kIndex, "\"a\"", "/etc/passwd"}));
}

TEST_F(CheckpointTest, NamesATruncatedShard) {
  const fs::path shard = folder_ / "transformer/diffusion_pytorch_model-00001-of-00002.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 10);
  EXPECT_TRUE(transformer_fails({"diffusion_pytorch_model-00001-of-00002.safetensors", "outside of the file"}));
}

TEST_F(CheckpointTest, NamesOtherWeightFilesInTheError) {
  fs::remove_all(folder_ / "vae");
  write_text(folder_ / "vae/config.json", "{}");
  EXPECT_TRUE(throws_error([&] { open().component("vae"); }, {"vae", "no diffusion_pytorch_model.safetensors"}));
  write_text(folder_ / "vae/diffusion_pytorch_model.non_ema.safetensors", "");
  EXPECT_TRUE(throws_error([&] { open().component("vae"); }, {"found diffusion_pytorch_model.non_ema.safetensors"}));
}

TEST_F(CheckpointTest, UsesTorchFilesOnlyIfThereIsNoOther) {
  const auto found = [&](const std::string& name) {
    write_text(folder_ / "torch" / name, "");
    return weights_in(folder_ / "torch").filename().string();
  };
  for (const char* name :
       {"pytorch_model.fp16.bin", "pytorch_model.bin.index.json", "pytorch_model.bin", "diffusion_pytorch_model.bin",
        "model.fp16.safetensors", "diffusion_pytorch_model.safetensors.index.json"})
    EXPECT_EQ(found(name), name);
  EXPECT_EQ(found("diffusion_pytorch_model.fp16.bin"), "diffusion_pytorch_model.safetensors.index.json");
  fs::remove(folder_ / "vae/diffusion_pytorch_model.safetensors");
  fs::copy(std::string(SPARSEREEL_FUZZ_CORPUS) + "/torch_zip/valid.pth", folder_ / "vae/diffusion_pytorch_model.bin");
  EXPECT_EQ(open().component("vae").tensors.count("tail"), 1U);
}

TEST_F(CheckpointTest, UsesAVariantIfThePlainFileIsMissing) {
  const auto move = [&](const std::string& from, const std::string& to) { fs::rename(folder_ / from, folder_ / to); };
  const size_t tensors = open().component("transformer").tensors.size();
  const fs::path plain = folder_ / "vae/diffusion_pytorch_model.safetensors";
  fs::copy(plain, folder_ / "vae/diffusion_pytorch_model.fp16.safetensors");
  fs::copy(plain, folder_ / "vae/diffusion_pytorch_model.bf16.safetensors");
  EXPECT_EQ(open().component("vae").files[0]->path(), plain);
  fs::remove(plain);
  EXPECT_EQ(open().component("vae").files[0]->path(), folder_ / "vae/diffusion_pytorch_model.bf16.safetensors");
  std::string index = "transformer/diffusion_pytorch_model.safetensors.index.json";
  json content = read_json(folder_ / index);
  for (auto& [tensor, shard] : content["weight_map"].items()) {
    const std::string name = shard.get<std::string>(), variant = "diffusion_pytorch_model.bf16" + name.substr(23);
    if (fs::exists(folder_ / "transformer" / name)) move("transformer/" + name, "transformer/" + variant);
    shard = variant;
  }
  write_text(folder_ / index, content.dump());
  for (const char* name : {"transformer/diffusion_pytorch_model.safetensors.index.bf16.json",
                           "transformer/diffusion_pytorch_model.safetensors.bf16.index.json"}) {
    move(index, name);
    index = name;
    EXPECT_EQ(open().component("transformer").tensors.size(), tensors) << name;
  }
}

TEST(ParseJson, LimitsTheDepth) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth), "f", "r"));
  EXPECT_TRUE(throws_error([&] { parse_json(nested(kMaxJsonDepth + 1), "f", "r"); }, {"f: nested deeper than"}));
}

TEST(ParseJson, AllowsTheSameKeyInDifferentObjects) {
  EXPECT_NO_THROW(parse_json(R"({"a":{"x":1},"b":{"x":1},"x":[{"x":1},{"x":2}]})", "f", "r"));
}

/// Writes the tensors of the small Wan transformer to a file. `renamed` gives their new names.
fs::path write_transformer(const fs::path& path, const std::function<std::string(const std::string&)>& renamed) {
  const Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  const Component& all = model.component("transformer");
  std::vector<TensorView> views;
  for (const auto& [name, place] : all.tensors) {
    const TensorEntry& entry = *place.second;
    views.push_back({renamed(name), entry.dtype, entry.shape, all.files[place.first]->data(entry)});
  }
  write_safetensors(path, views);
  return path;
}

TEST(ReplacedWeights, AreFoundByDiffusersNamesInFilesWithOriginalNames) {
  const TemporaryFolder folder;
  Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  const Component usual = model.component("transformer");
  const NameMap names = find_family("WanPipeline")->part("transformer").names.others.front();
  const fs::path file = write_transformer(
      folder / "a.safetensors", [&](const std::string& name) { return "model.diffusion_model." + names.second(name); });
  model.replace("transformer", file);
  const Component& now = model.component("transformer");
  EXPECT_EQ(now.config, usual.config);
  EXPECT_EQ(now.origin, file);
  ASSERT_EQ(now.tensors.size(), usual.tensors.size());
  for (const auto& [name, place] : usual.tensors) {
    EXPECT_EQ(now.tensors.at(name).second->shape, place.second->shape) << name;
    EXPECT_EQ(now.name_in_file(name), now.tensors.at(name).second->name);
  }
  EXPECT_EQ(usual.name_in_file("proj_out.bias"), "proj_out.bias");
}

TEST(ReplacedWeights, AreFoundDespiteWrappedNames) {
  const TemporaryFolder folder;
  Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  const Component usual = model.component("transformer");
  const NameMap names = find_family("WanPipeline")->part("transformer").names.others.front();
  const auto in_blocks = [](std::string name, const std::string& wrapper) {
    if (name.starts_with("blocks.")) name.insert(name.find('.', 7) + 1, wrapper);
    return name;
  };
  using Spelling = std::function<std::string(const std::string&)>;
  std::vector<Spelling> spellings = {
      [&](const std::string& name) {
        return "model._fsdp_wrapped_module." + in_blocks(names.second(name), "_fsdp_wrapped_module.");
      },
      [&](const std::string& name) { return in_blocks(names.second(name), "_checkpoint_wrapped_module."); },
      [&](const std::string& name) { return in_blocks(name, "_orig_mod."); }};
  for (const char* prefix : {"module.", "_orig_mod.", "module._orig_mod.", "transformer.", "model.transformer.",
                             "module.model.diffusion_model.", "generator.model.", "generator_ema.module.model.", "net.",
                             "pipe.dit.", "base_model.model."})
    spellings.emplace_back([&, prefix](const std::string& name) { return prefix + names.second(name); });
  for (const Spelling& spelling : spellings) {
    const fs::path file = write_transformer(folder / "a.safetensors", spelling);
    model.replace("transformer", file);
    const Component& now = model.component("transformer");
    ASSERT_EQ(now.tensors.size(), usual.tensors.size()) << spelling("proj_out.bias");
    for (const auto& [name, place] : usual.tensors) {
      ASSERT_TRUE(now.tensors.contains(name)) << spelling(name);
      EXPECT_EQ(now.name_in_file(name), spelling(name));
    }
  }
}

TEST(ReplacedWeights, AreTakenFromAFileOfAWholePipeline) {
  const TemporaryFolder folder;
  Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  std::vector<TensorView> views;
  std::map<std::string, size_t> counts;
  for (const std::string role : {"transformer", "vae", "text_encoder"}) {
    const Component& all = model.component(role);
    counts[role] = all.tensors.size();
    for (const auto& [name, place] : all.tensors) {
      const TensorEntry& entry = *place.second;
      views.push_back({role + "." + name, entry.dtype, entry.shape, all.files[place.first]->data(entry)});
    }
  }
  write_safetensors(folder / "all.safetensors", views);
  Checkpoint other = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  for (const auto& [role, count] : counts) {
    other.replace(role, folder / "all.safetensors");
    EXPECT_EQ(other.component(role).tensors.size(), count) << role;
  }
}

TEST(ReplacedWeights, AreAcceptedInARandomModel) {
  const TemporaryFolder folder;
  const Checkpoint source = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  json architecture;
  for (const char* role : {"transformer", "vae", "text_encoder", "scheduler"}) architecture[role] = source.config(role);
  Checkpoint model = Checkpoint::with_random_weights("a.yaml", "WanTransformer3DModel", architecture, 3);
  model.replace("transformer", write_transformer(folder / "a.safetensors", [](const auto& name) { return name; }));
  EXPECT_FALSE(model.component("transformer").random_seed);
  EXPECT_EQ(model.component("transformer").files.size(), 1U);
  EXPECT_EQ(model.component("vae").random_seed, 3U);
}

TEST(ReplacedWeights, AreRefusedForAnUnknownRoleOrOtherSizes) {
  const TemporaryFolder folder;
  Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  const fs::path deep = write_transformer(folder / "deep.safetensors", [](std::string name) {
    return name.starts_with("blocks.1.") ? name.replace(7, 1, "8") : name;
  });
  EXPECT_TRUE(throws_error([&] { model.replace("transformer", deep); },
                           {"deep.safetensors: does not fit", "transformer/config.json: num_layers is 9, not 2"}));
  EXPECT_TRUE(throws_error([&] { model.replace("transformer_2", deep); }, {"transformer_2", "has no transformer_2"}));
  const fs::path other = write_transformer(folder / "other.safetensors", [](const auto& name) { return "a." + name; });
  EXPECT_TRUE(
      throws_error([&] { model.replace("transformer", other); }, {"holds no WanTransformer3DModel", "\"a.blocks."}));
}

/// Rows of packed tensors have fewer columns than the config gives, so the error could be about the shape. It must be
/// about the format, which is not supported here.
TEST(ReplacedWeights, AreRefusedForTheirFormatBeforeTheirSizes) {
  const TemporaryFolder folder;
  Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  const std::string mark = R"({"format":"svdquant_w4a4"})", codes(64, '\1');
  write_safetensors(folder / "a.safetensors",
                    {{"patch_embedding.weight", Dtype::u8, {64, 1}, std::as_bytes(std::span(codes))},
                     {"blocks.7.ffn.net.0.proj.weight", Dtype::u8, {64, 1}, std::as_bytes(std::span(codes))},
                     {"blocks.7.ffn.net.0.proj.comfy_quant",
                      Dtype::u8,
                      {static_cast<int64_t>(mark.size())},
                      std::as_bytes(std::span(mark))}});
  EXPECT_TRUE(throws_error([&] { model.replace("transformer", folder / "a.safetensors"); },
                           {"a.safetensors", "blocks.7.ffn.net.0.proj", "svdquant_w4a4, which is not supported"}));
}

}  // namespace
}  // namespace sparsereel::models
