// Tests that the tensors of T5 and UMT5 are found under every naming scheme that their files use, and that the sizes of
// tensors tell which of the two models a file holds.
#include "models/text/encoder/t5_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "models/store/checkpoint/checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::TemporaryFolder;
using test::throws_error;
using Spelling = std::function<std::string(const std::string&)>;

/// Returns the config and the tensors' names and shapes of a published encoder.
json published(const std::string& name) {
  std::ifstream file(SPARSEREEL_TEST_DATA "/" + name + "_names.json");
  return json::parse(file);
}

Spelling as_in(size_t map) {
  return [names = t5_names().others.at(map)](const std::string& name) { return names.second(name); };
}

/// Writes a file with the tensors of `model` and `others`, whose data is a hole. `spelling` renames the tensors of
/// `model`.
fs::path write_published(const fs::path& path, const json& model, const Spelling& spelling,
                         const json& others = json::object()) {
  json header = others;
  uint64_t end = 0;
  for (const auto& [name, tensor] : header.items()) end += tensor["data_offsets"][1].get<uint64_t>();
  for (const auto& [name, shape] : model["tensors"].items()) {
    uint64_t bytes = 2;
    for (const json& size : shape) bytes *= size.get<uint64_t>();
    header[spelling(name)] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), sizeof(length)) << text;
  fs::resize_file(path, sizeof(length) + length + end);
  return path;
}

/// Returns a pipeline whose text encoder has the published sizes.
Checkpoint pipeline_of(const TemporaryFolder& folder, const std::string& pipeline, const json& model) {
  fs::copy(fs::path(SPARSEREEL_TEST_DATA) / pipeline, folder / "model", fs::copy_options::recursive);
  std::ofstream(folder / "model" / "text_encoder" / "config.json") << model["config"];
  return Checkpoint::open(folder / "model");
}

TEST(T5Names, MatchThreePrograms) {
  const std::tuple<const char*, const char*, const char*> names[] = {
      {"shared.weight", "token_embedding.weight", "token_embd.weight"},
      {"encoder.block.23.layer.0.SelfAttention.q.weight", "blocks.23.attn.q.weight", "enc.blk.23.attn_q.weight"},
      {"encoder.block.0.layer.0.SelfAttention.k.scale_weight", "blocks.0.attn.k.scale_weight",
       "enc.blk.0.attn_k.scale_weight"},
      {"encoder.block.0.layer.0.SelfAttention.v.weight", "blocks.0.attn.v.weight", "enc.blk.0.attn_v.weight"},
      {"encoder.block.0.layer.0.SelfAttention.o.weight", "blocks.0.attn.o.weight", "enc.blk.0.attn_o.weight"},
      {"encoder.block.7.layer.0.SelfAttention.relative_attention_bias.weight",
       "blocks.7.pos_embedding.embedding.weight", "enc.blk.7.attn_rel_b.weight"},
      {"encoder.block.7.layer.0.layer_norm.weight", "blocks.7.norm1.weight", "enc.blk.7.attn_norm.weight"},
      {"encoder.block.7.layer.1.layer_norm.weight", "blocks.7.norm2.weight", "enc.blk.7.ffn_norm.weight"},
      {"encoder.block.7.layer.1.DenseReluDense.wi_0.weight", "blocks.7.ffn.gate.0.weight", "enc.blk.7.ffn_gate.weight"},
      {"encoder.block.7.layer.1.DenseReluDense.wi_1.weight", "blocks.7.ffn.fc1.weight", "enc.blk.7.ffn_up.weight"},
      {"encoder.block.7.layer.1.DenseReluDense.wo.weight", "blocks.7.ffn.fc2.weight", "enc.blk.7.ffn_down.weight"},
      {"encoder.final_layer_norm.weight", "norm.weight", "enc.output_norm.weight"}};
  for (const auto& [ours, authors, gguf] : names) {
    EXPECT_EQ(as_in(0)(ours), authors);
    EXPECT_EQ(as_in(1)(ours), gguf);
  }
}

TEST(T5Names, ConvertThereAndBackForEveryPublishedTensor) {
  for (const auto& [model, count] : {std::pair("umt5", 242U), std::pair("t5", 219U)}) {
    const json tensors = published(model)["tensors"];
    EXPECT_EQ(tensors.size(), count);
    for (const NameMap& map : t5_names().others) {
      std::set<std::string> theirs;
      for (const auto& [name, shape] : tensors.items()) {
        EXPECT_NE(map.second(name), name);
        EXPECT_EQ(map.first(map.second(name)), name);
        EXPECT_EQ(map.first(name), name) << "a file in transformers' names stays as it is";
        theirs.insert(map.second(name));
      }
      EXPECT_EQ(theirs.size(), count);
    }
  }
}

TEST(T5Names, OpenPublishedFilesInEveryNaming) {
  const TemporaryFolder folder;
  const json model = published("umt5"),
             others = {{"spiece_model", {{"dtype", "U8"}, {"shape", {9}}, {"data_offsets", {0, 9}}}},
                       {"scaled_fp8", {{"dtype", "F8_E4M3"}, {"shape", {0}}, {"data_offsets", {0, 0}}}}};
  Checkpoint wan = pipeline_of(folder, "wan/pipeline", model);
  std::vector<Spelling> spellings = {as_in(0), as_in(1)};
  for (const char* prefix : {"", "text_encoders.umt5xxl.transformer.", "umt5xxl.transformer.", "t5xxl.transformer.",
                             "text_encoders.transformer.", "text_encoder.", "module.", "text_encoder._orig_mod."})
    spellings.emplace_back([prefix](const std::string& name) { return prefix + name; });
  for (const Spelling& spelling : spellings) {
    const fs::path file = write_published(folder / "a.safetensors", model, spelling, others);
    wan.replace("text_encoder", file);
    const Component& now = wan.component("text_encoder");
    ASSERT_EQ(now.tensors.size(), 242U);
    for (const auto& [name, shape] : model["tensors"].items()) {
      EXPECT_EQ(now.tensors.at(name).second->shape, shape.get<std::vector<int64_t>>());
      EXPECT_EQ(now.name_in_file(name), spelling(name));
    }
  }
}

std::string remedy_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.remedy();
  }
  return "none";
}

TEST(T5Names, RefuseAnEncoderWithAnotherVocabulary) {
  const TemporaryFolder first, second;
  const json t5 = published("t5"), umt5 = published("umt5");
  Checkpoint wan = pipeline_of(first, "wan/pipeline", umt5), cogvideox = pipeline_of(second, "pipeline", t5);
  const fs::path t5_file = write_published(first / "t5xxl.safetensors", t5, as_in(0)),
                 umt5_file = write_published(second / "umt5.safetensors", umt5, as_in(1));
  EXPECT_NO_THROW(cogvideox.replace("text_encoder", t5_file));
  EXPECT_NO_THROW(wan.replace("text_encoder", umt5_file));
  const auto to_wan = [&] { wan.replace("text_encoder", t5_file); };
  const auto to_cogvideox = [&] { cogvideox.replace("text_encoder", umt5_file); };
  EXPECT_TRUE(throws_error(to_wan, {"t5xxl.safetensors: does not fit", "layers with a relative bias is 1, not 24",
                                    "vocab_size is 32128, not 256384"}));
  EXPECT_THAT(remedy_of(to_wan), ::testing::HasSubstr("umt5_xxl_fp8_e4m3fn_scaled.safetensors"));
  EXPECT_TRUE(throws_error(to_cogvideox, {"umt5.safetensors: does not fit", "vocab_size is 256384, not 32128"}));
  EXPECT_THAT(remedy_of(to_cogvideox), ::testing::HasSubstr("t5xxl_fp16.safetensors"));
}

}  // namespace
}  // namespace sparsereel::models
