// Tests which weights the Qwen3 text encoder accepts: under every naming scheme, and packed in 8 or 4 bits.
// tests/parity compares its output.
#include "models/text/encoder/qwen3_encoder.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/store/checkpoint/safetensors.h"
#include "models/text/encoder/qwen3_names.h"
#include "tests/support/qwen3_component.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::throws_error;

constexpr int64_t kUsed = 3;  // layers that the encoder uses, of 4

using Tensors = std::map<std::string, at::Tensor>;

Tensors tensors_in(const Component& component) {
  Tensors all;
  for (const auto& [name, place] : component.tensors) {
    const std::span<const std::byte> data = component.files[place.first]->data(*place.second);
    all[name] = at::from_blob(const_cast<std::byte*>(data.data()), place.second->shape, at::kFloat).clone();
  }
  return all;
}

Dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kChar:
      return Dtype::i8;
    case at::kByte:
      return Dtype::u8;
    case at::kBFloat16:
      return Dtype::bf16;
    case at::kFloat8_e4m3fn:
      return Dtype::f8_e4m3;
    default:
      return Dtype::f32;
  }
}

void write(const fs::path& file, const Tensors& tensors) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({name,
                     dtype_of(tensor),
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  write_safetensors(file, views);
}

Qwen3Encoder load(const Component& component, WeightFormat format = at::kFloat,
                  Residence residence = Residence::device) {
  return Qwen3Encoder::load(component, at::kCPU, format, residence, kUsed);
}

class Qwen3EncoderTest : public ::testing::Test {
 protected:
  Tensors small() const { return tensors_in(test::small_qwen3()); }
  Component written(const Tensors& tensors) const {
    write(folder_ / "a.safetensors", tensors);
    return test::small_qwen3(folder_ / "a.safetensors");
  }
  at::Tensor hidden(const Component& component, WeightFormat format = at::kFloat,
                    Residence residence = Residence::device) const {
    return load(component, format, residence).forward(ids_);
  }

  c10::InferenceMode inference_;
  TemporaryFolder folder_;
  const at::Tensor ids_ = at::tensor({5, 95, 0, 17, 5}, at::kLong).unsqueeze(0);
};

TEST_F(Qwen3EncoderTest, TakesFilesThatHoldOnlyTheUsedLayers) {
  const at::Tensor expected = hidden(test::small_qwen3());
  for (const NameMap& names : qwen3_names().others) {
    Tensors others;
    for (const auto& [name, tensor] : small())
      if (name.find("layers.3.") == std::string::npos && !name.ends_with("model.norm.weight"))
        others[names.second(name)] = tensor;
    EXPECT_TRUE(hidden(written(others)).equal(expected));
  }
}

TEST_F(Qwen3EncoderTest, IgnoresHeadLastLayersAndTheModelOfImages) {
  Tensors tensors = small();
  tensors["lm_head.weight"] = at::ones({96, 32});
  tensors["model.visual.blocks.0.norm1.weight"] = at::ones({8});
  tensors["model.language_model.layers.3.mlp.up_proj.weight"] = at::ones({1});
  EXPECT_NO_THROW(load(written(tensors)));
}

TEST_F(Qwen3EncoderTest, ListsAllUnsuitableWeightsInOneError) {
  Tensors tensors = small();
  tensors.erase("model.language_model.embed_tokens.weight");
  tensors.erase("model.language_model.layers.1.self_attn.q_norm.weight");
  tensors["model.language_model.layers.2.mlp.down_proj.weight"] = at::ones({32, 47});
  tensors["model.language_model.layers.0.self_attn.q_proj.bias"] = at::ones({64});
  const std::vector<std::string> words = {"embed_tokens.weight", "layers.1.self_attn.q_norm.weight",
                                          "layers.2.mlp.down_proj.weight"};
  EXPECT_TRUE(throws_error([&] { load(written(tensors)); }, words));
  const Component component = written(tensors);
  EXPECT_TRUE(throws_error([&] { hidden(component, at::kFloat, Residence::file); }, words));
}

TEST_F(Qwen3EncoderTest, RefusesFewerLayersThanTheModelUses) {
  EXPECT_TRUE(throws_error([] { Qwen3Encoder::load(test::small_qwen3(), at::kCPU, at::kFloat, Residence::device, 5); },
                           {"config.json", "num_hidden_layers is 4", "after 5 layers"}));
}

TEST_F(Qwen3EncoderTest, RefusesIdsOutsideTheVocabulary) {
  const Qwen3Encoder encoder = load(test::small_qwen3());
  EXPECT_TRUE(throws_error([&] { encoder.forward(at::full({1, 2}, 96, at::kLong)); }, {"id 96", "vocab_size is 96"}));
}

TEST_F(Qwen3EncoderTest, SeesNoLaterToken) {
  const Qwen3Encoder encoder = load(test::small_qwen3());
  at::Tensor other = ids_.clone();
  other[0][4] = 6;
  const at::Tensor before = encoder.forward(ids_), after = encoder.forward(other);
  EXPECT_TRUE(at::allclose(before.slice(1, 0, 4), after.slice(1, 0, 4)));
  EXPECT_FALSE(at::allclose(before.slice(1, 4), after.slice(1, 4)));
}

/// A prompt needs few of the table's 151,936 rows, so the table must be neither copied nor converted.
TEST_F(Qwen3EncoderTest, LeavesTheEmbeddingInItsFile) {
  Tensors tensors = small();
  at::Tensor& table = tensors.at("model.language_model.embed_tokens.weight");
  table = table.to(at::kBFloat16);
  const Component component = written(tensors);
  const Qwen3Encoder encoder = load(component);
  const auto& [file, entry] = component.tensors.at("model.language_model.embed_tokens.weight");
  EXPECT_EQ(encoder.embedding.weight.const_data_ptr(), component.files[file]->data(*entry).data());
  table = table.to(at::kFloat);
  EXPECT_TRUE(encoder.forward(ids_).equal(hidden(written(tensors))));
}

TEST_F(Qwen3EncoderTest, CountsTheUsedWeights) {
  const Qwen3Encoder encoder = load(test::small_qwen3());
  constexpr uint64_t kLayer = 4 * (32 * (64 + 2 * 32 + 64 + 3 * 48) + 2 * 32 + 2 * 16), kTable = 4 * 96 * 32;
  EXPECT_EQ(encoder.weight_bytes(), 3 * kLayer + kTable);
  EXPECT_EQ(encoder.streamed_bytes(), kLayer) << "the embedding stays on the host";
  EXPECT_EQ(encoder.vocab_size(), 96);
  const Qwen3Encoder meta = Qwen3Encoder::load(test::small_qwen3(), at::kMeta, at::kBFloat16, Residence::device, kUsed);
  EXPECT_EQ(meta.weight_bytes(), (3 * kLayer + kTable) / 2);
}

TEST_F(Qwen3EncoderTest, RunsWithRandomWeights) {
  Component component = test::small_qwen3();
  component.random_seed = 7;
  const at::Tensor first = hidden(component), second = hidden(component, at::kFloat, Residence::file);
  EXPECT_TRUE(first.equal(second));
  EXPECT_FALSE(at::allclose(first, hidden(test::small_qwen3())));
  EXPECT_EQ(load(component).streamed_bytes() - load(test::small_qwen3()).streamed_bytes(), 4u * 96 * 32);
}

at::Tensor marker(const std::string& text) {
  return at::tensor(std::vector<uint8_t>(text.begin(), text.end()), at::kByte);
}

/// Replaces a weight [out, in] by random codes and scales as in ComfyUI's nvfp4_awq files. Two projections also get a
/// factor for each column.
void put_nvfp4(Tensors& tensors, const std::string& layer, int64_t out, int64_t in) {
  const int64_t rows = (out + 127) / 128 * 128, blocks = (in / 16 + 3) / 4 * 4;
  tensors[layer + ".weight"] = at::randint(0, 256, {out, in / 2}, at::kByte);
  tensors[layer + ".weight_scale"] = (at::rand({rows, blocks}) + 0.5).to(at::kFloat8_e4m3fn);
  tensors[layer + ".weight_scale_2"] = at::full({}, 0.05, at::kFloat);
  tensors[layer + ".comfy_quant"] = marker(R"({"format": "nvfp4", "full_precision_matrix_mult": true})");
  if (layer.ends_with("o_proj") || layer.ends_with("down_proj"))
    tensors[layer + ".pre_quant_scale"] = (at::rand({in}) + 0.5).to(at::kBFloat16);
}

void put_int8(Tensors& tensors, const std::string& layer, int64_t out, int64_t in) {
  tensors[layer + ".weight"] = at::randint(-127, 128, {out, in}, at::kChar);
  tensors[layer + ".weight_scale"] = at::rand({out, 1}) * 0.002 + 0.001;
  tensors[layer + ".comfy_quant"] =
      marker(R"({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 16})");
}

/// Compares matrices in 8 or 4 bits with a file of the same numbers in fp32, both if all layers stay in memory and if
/// the layers are read one by one.
TEST_F(Qwen3EncoderTest, MatchesUnpackedMatrices) {
  const nlohmann::json text = {{"vocab_size", 96},       {"hidden_size", 64},        {"intermediate_size", 128},
                               {"num_hidden_layers", 4}, {"num_attention_heads", 8}, {"num_key_value_heads", 4},
                               {"head_dim", 16},         {"rope_theta", 5e6}};
  for (const auto& put : {put_nvfp4, put_int8}) {
    at::manual_seed(3);
    Tensors packed;
    packed["model.embed_tokens.weight"] = at::randint(-127, 128, {96, 64}, at::kChar);
    packed["model.embed_tokens.weight_scale"] = at::rand({96, 1}) * 0.02;
    for (int64_t i = 0; i < kUsed; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
        packed[layer + norm + ".weight"] = at::rand({64}) + 0.5;
      for (const char* norm : {"q_norm", "k_norm"})
        packed[layer + "self_attn." + norm + ".weight"] = at::rand({16}) + 0.5;
      for (const auto& [name, out, in] :
           {std::tuple("self_attn.q_proj", 128, 64), std::tuple("self_attn.k_proj", 64, 64),
            std::tuple("self_attn.v_proj", 64, 64), std::tuple("self_attn.o_proj", 64, 128),
            std::tuple("mlp.gate_proj", 128, 64), std::tuple("mlp.up_proj", 128, 64),
            std::tuple("mlp.down_proj", 64, 128)})
        put(packed, layer + name, out, in);
    }
    Component component = written(packed);
    component.config = text;
    Tensors twin;
    WeightReader reader(component, at::kCPU, at::kFloat);
    for (const auto& [name, place] : component.tensors) {
      if (!name.ends_with(".weight")) continue;
      std::vector<int64_t> shape = place.second->shape;
      if (place.second->dtype == Dtype::u8) shape[1] *= 2;
      twin[name] = reader.tensor(name, shape).clone();
    }
    write(folder_ / "twin.safetensors", twin);
    Component plain = test::small_qwen3(folder_ / "twin.safetensors");
    plain.config = text;
    const at::Tensor expected = hidden(plain);
    for (const Residence residence : {Residence::device, Residence::file})
      EXPECT_TRUE(at::allclose(hidden(component, at::kFloat, residence), expected, 1e-5, 1e-5));
    EXPECT_FALSE(load(component).layers[0].feed_forward_in.rows.empty()) << "they stay packed";
    EXPECT_LT(load(component).weight_bytes(), load(plain).weight_bytes() / 3);
  }
}

}  // namespace
}  // namespace sparsereel::models
