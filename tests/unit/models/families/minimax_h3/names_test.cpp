// Tests that MiniMax-H3's files give the same weights, whichever program's names and order of rows they have.
#include "models/families/minimax_h3/names.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/families/minimax_h3/config.h"
#include "models/layers/int8.h"
#include "models/layers/rotation.h"
#include "models/request/attention_run.h"
#include "tests/support/minimax_h3_files.h"

namespace sparsereel::models {
namespace {

using test::close_to;
using test::NamedTensors;

class MiniMaxH3Names : public ::testing::Test {
 protected:
  void expect_same(const Component& component, const NamedTensors& weights, double tolerance = 0) const {
    const Component plain = test::open_minimax_h3(test::write_tensors(folder_ / "plain.safetensors", weights), case_);
    const Prediction expected = predict(plain, case_), actual = predict(component, case_);
    EXPECT_TRUE(close_to(actual.video, expected.video, tolerance));
    EXPECT_TRUE(close_to(actual.sound, expected.sound, tolerance));
  }
  int64_t head_dim() const { return case_.content["config"]["attention_head_dim"].get<int64_t>(); }
  NamedTensors in_authors_names(const NamedTensors& weights, FusedRows order) const {
    return test::in_authors_names(weights, order, head_dim());
  }

  c10::InferenceMode inference_;
  const test::TemporaryFolder folder_;
  const test::ParityCase case_ = test::minimax_h3_case();
  const NamedTensors weights_ = test::minimax_h3_weights(case_);
};

TEST_F(MiniMaxH3Names, GiveTheSamePredictionForEachLayout) {
  const NamedTensors comfy = in_authors_names(weights_, FusedRows::by_kind),
                     authors = in_authors_names(weights_, FusedRows::by_head);
  ASSERT_TRUE(comfy.contains("blocks.1.attn.qkv_proj.weight"));
  ASSERT_TRUE(comfy.contains("token_refiner.blocks.0.mlp.fc1.weight"));
  for (const char* prefix : {"", "model.diffusion_model.", "diffusion_model."}) {
    SCOPED_TRACE(prefix);
    expect_same(test::open_minimax_h3(test::write_tensors(folder_ / "a.safetensors", comfy, prefix), case_), weights_);
  }
  expect_same(test::open_minimax_h3(test::write_index(folder_.path(), authors), case_), weights_);
}

TEST_F(MiniMaxH3Names, LoadSixteenBitsInEachLayout) {
  NamedTensors halves;
  for (const auto& [name, tensor] : weights_) halves[name] = tensor.to(at::kBFloat16);
  expect_same(
      test::open_minimax_h3(test::write_index(folder_.path(), in_authors_names(halves, FusedRows::by_head)), case_),
      halves);
}

/// A file's form suggests an order of its rows, which may be wrong. The numbers show the true order if queries and keys
/// are longer than values, so all combinations of forms and orders must load the same weights.
TEST_F(MiniMaxH3Names, NoticeEveryWrongLayoutByTheNumbers) {
  const NamedTensors weights = test::minimax_h3_weights(case_, 1.5);
  for (const FusedRows order : {FusedRows::by_kind, FusedRows::by_head}) {
    const NamedTensors stored = in_authors_names(weights, order);
    SCOPED_TRACE(order == FusedRows::by_kind ? "by kind" : "by head");
    expect_same(test::open_minimax_h3(test::write_index(folder_.path(), stored), case_), weights);
    for (const char* prefix : {"", "model.diffusion_model."}) {
      const auto file = test::write_tensors(folder_ / "a.safetensors", stored, prefix);
      expect_same(test::open_minimax_h3(file, case_), weights);
    }
  }
}

/// The same holds for formats whose codes and scales lie in several tensors.
TEST_F(MiniMaxH3Names, NoticeEveryWrongLayoutOfJoinedFormats) {
  const NamedTensors weights = test::wide_projections(3);
  for (const char* format : {"mxfp8", "nvfp4", "convrot_w4a4", "awq_w4a16"}) {
    SCOPED_TRACE(format);
    std::vector<NamedTensors> read;
    for (const FusedRows order : {FusedRows::by_kind, FusedRows::by_head}) {
      const NamedTensors stored = test::quantized_projections(test::in_authors_names(weights, order, 128), format);
      const auto file = test::write_tensors(folder_ / "a.safetensors", stored, "model.diffusion_model.");
      const Component component = test::open_minimax_h3(file, case_);
      EXPECT_EQ(component.doubt, "");
      WeightReader reader(component, at::kCPU, at::kFloat);
      NamedTensors& numbers = read.emplace_back();
      for (const auto& [name, tensor] : weights) numbers[name] = reader.read(parameter(name, tensor.sizes().vec()));
    }
    for (const auto& [name, tensor] : weights) {
      EXPECT_TRUE(read[0].at(name).equal(read[1].at(name))) << name;
      if (format == std::string("convrot_w4a4")) continue;  // the test does not rotate
      const double error = (read[0].at(name) - tensor).abs().max().item<double>();
      EXPECT_LT(error, 0.4 * tensor.abs().max().item<double>()) << name;
    }
  }
}

TEST_F(MiniMaxH3Names, MatterForThePrediction) {
  const Component plain = test::open_minimax_h3(test::write_tensors(folder_ / "p.safetensors", weights_), case_);
  // If queries, keys and values are equally long, the form of the file decides. This file's form suggests a wrong
  // order.
  const auto file = test::write_tensors(folder_ / "a.safetensors", in_authors_names(weights_, FusedRows::by_head));
  const Component component = test::open_minimax_h3(file, case_);
  EXPECT_NE(component.doubt.find("a.safetensors: its numbers do not tell"), std::string::npos);
  const Prediction wrong = predict(component, case_);
  EXPECT_FALSE(close_to(wrong.video, predict(plain, case_).video, 1e-2));
}

/// Stores the matrices as ComfyUI does: in int8 with scales of rows, a rotation and ComfyUI's description, or in fp8
/// with one scale.
TEST_F(MiniMaxH3Names, LoadRotatedIntegersAndScaledFp8) {
  for (const bool is_int8 : {true, false}) {
    SCOPED_TRACE(is_int8);
    NamedTensors stored = in_authors_names(weights_, FusedRows::by_kind), dequantized = stored;
    for (const auto& [name, tensor] : in_authors_names(weights_, FusedRows::by_kind)) {
      const bool is_inside = name.find(".attn.") != std::string::npos || name.find(".mlp.") != std::string::npos;
      const bool is_product = name.starts_with("blocks.") && is_inside && tensor.dim() == 2;
      if (!is_product) continue;
      const std::string layer = name.substr(0, name.size() - std::string("weight").size());
      if (is_int8) {
        const Int8Rows rows = quantize_int8(tensor, 16);
        stored[name] = rows.values;
        stored[layer + "weight_scale"] = rows.scale.unsqueeze(1);
        const std::string mark = R"({"format":"int8_tensorwise","convrot":true,"convrot_groupsize":16})";
        stored[layer + "comfy_quant"] =
            at::tensor(at::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(mark.data()), mark.size()), at::kByte);
        at::Tensor numbers = rows.values.to(at::kFloat) * rows.scale.unsqueeze(1);
        rotate_(numbers, 16);
        dequantized[name] = numbers;
      } else {
        const double scale = tensor.abs().max().item<double>() / 448;
        stored[name] = (tensor / scale).to(at::kFloat8_e4m3fn);
        stored[layer + "weight_scale"] = at::full({}, scale, at::kFloat);
        dequantized[name] = stored[name].to(at::kFloat) * static_cast<float>(scale);
      }
    }
    const auto file = test::write_tensors(folder_ / "a.safetensors", stored, "model.diffusion_model.");
    const auto exact = test::write_tensors(folder_ / "b.safetensors", dequantized);
    const Prediction expected = predict(test::open_minimax_h3(exact, case_), case_),
                     actual = predict(test::open_minimax_h3(file, case_), case_);
    EXPECT_TRUE(close_to(actual.video, expected.video, 1e-4));
    EXPECT_FALSE(close_to(
        actual.video,
        predict(test::open_minimax_h3(test::write_tensors(folder_ / "p.safetensors", weights_), case_), case_).video,
        1e-4));
  }
}

/// Returns the matrix in the format q8_0: an fp16 scale and 32 int8 numbers for each block.
std::string q8_0_of(const at::Tensor& matrix) {
  std::string bytes;
  const at::Tensor blocks = matrix.reshape({-1, 32});
  for (int64_t i = 0; i < blocks.size(0); ++i) {
    const at::Tensor scale = (blocks[i].abs().max() / 127).to(at::kHalf);
    const at::Tensor codes = (blocks[i] / scale.to(at::kFloat)).round().to(at::kChar);
    bytes.append(static_cast<const char*>(scale.const_data_ptr()), 2);
    bytes.append(static_cast<const char*>(codes.const_data_ptr()), 32);
  }
  return bytes;
}

/// Writes a GGUF file of version 3. Matrices whose rows are whole blocks become q8_0, other tensors F32.
std::filesystem::path write_gguf(const std::filesystem::path& file, const NamedTensors& tensors) {
  constexpr uint32_t kF32 = 0, kQ8 = 8;
  std::string header = "GGUF", data;
  const auto add = [&](auto number) { header.append(reinterpret_cast<const char*>(&number), sizeof number); };
  add(uint32_t{3});
  add(uint64_t{tensors.size()});
  add(uint64_t{0});
  for (const auto& [name, tensor] : tensors) {
    const bool is_packed = tensor.dim() == 2 && tensor.size(1) % 32 == 0;
    add(uint64_t{name.size()});
    header += name;
    add(static_cast<uint32_t>(tensor.dim()));
    for (int64_t axis = tensor.dim(); axis-- > 0;) add(static_cast<uint64_t>(tensor.size(axis)));
    add(is_packed ? kQ8 : kF32);
    add(uint64_t{data.size()});
    data +=
        is_packed ? q8_0_of(tensor) : std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    data.resize((data.size() + 31) / 32 * 32);
  }
  header.resize((header.size() + 31) / 32 * 32);
  test::write_text(file, header + data);
  return file;
}

TEST_F(MiniMaxH3Names, LoadAGguf) {
  const NamedTensors stored = in_authors_names(weights_, FusedRows::by_kind);
  const Component component = test::open_minimax_h3(write_gguf(folder_ / "a.gguf", stored), case_);
  EXPECT_EQ(component.tensors.at("transformer_blocks.0.attn.to_out.0.weight").second->dtype, Dtype::q8_0);
  expect_same(component, weights_, 2e-2);
}

TEST_F(MiniMaxH3Names, KnowEveryNameOfThePublishedModel) {
  const nlohmann::json published = test::read_data("minimax_h3/dit_names.json").at("33B");
  const NameMap names = minimax_h3_transformer_part().names.others.front();
  nlohmann::json all = published["rest"];
  for (const auto& [name, shape] : published["block"].items()) all["transformer_blocks.7." + name] = shape;
  for (const auto& [name, shape] : all.items()) {
    if (name == "token_refiner.final_norm.weight") continue;  // has the same name in both
    const std::string theirs = names.second(name);
    EXPECT_NE(theirs, name);
    EXPECT_EQ(names.first(name), name) << "a file in diffusers' names stays as it is";
    const std::vector<PlacedName> back = names.placed_firsts(theirs);
    EXPECT_TRUE(std::ranges::any_of(back, [&, &wanted = name](const PlacedName& p) { return p.name == wanted; }))
        << theirs;
  }
}

TEST_F(MiniMaxH3Names, ShowTheSizesOfTheConfig) {
  const Part part = minimax_h3_transformer_part();
  const Sizes sizes = part.sizes_by_config(case_.content["config"], "config.json");
  for (const FusedRows order : {FusedRows::by_kind, FusedRows::by_head}) {
    const auto index = test::write_index(folder_.path(), in_authors_names(test::minimax_h3_weights(case_, 2), order));
    EXPECT_EQ(part.sizes_by_tensors(test::open_minimax_h3(index, case_).tensors), sizes);
  }
  EXPECT_TRUE(part.sizes_by_tensors(TensorTable()).empty());
  EXPECT_EQ(sizes.size(), 9U);
}

/// Returns the tensors of the small VAE under the authors' names, with q, k and v stored head by head.
NamedTensors vae_in_authors_names(const std::filesystem::path& file, int64_t head_dim) {
  const StoredWeights stored = open_weights(file);
  static const Part part = minimax_h3_vae_part();
  const Component component = component_of(stored, part);
  WeightReader reader(component, at::kCPU, at::kFloat);
  const NameMap names = minimax_h3_vae_part().names.others.front();
  NamedTensors renamed;
  const auto read = [&](const std::string& name) {
    return reader.tensor(name, component.tensors.at(name).second->shape);
  };
  for (const auto& [name, place] : component.tensors) {
    const at::Tensor tensor = read(name);
    if (const size_t at = name.find("attn.to_q."); at != std::string::npos) {
      std::vector<at::Tensor> kinds;
      for (const char* kind : {"to_q", "to_k", "to_v"})
        kinds.push_back(read(std::string(name).replace(at + 5, 4, kind)).unflatten(0, {-1, head_dim}));
      renamed[std::string(name).replace(at + 5, 4, "to_qkv")] = at::stack(kinds, 1).flatten(0, 2).contiguous();
    } else if (name.find(".ff.net.0.proj.") != std::string::npos) {
      const std::vector<at::Tensor> halves = tensor.chunk(2);
      renamed[names.second(name)] = at::cat({halves[1], halves[0]});
    } else if (name.find("to_k.") == std::string::npos && name.find("to_v.") == std::string::npos) {
      renamed[names.second(name)] = tensor.clone();
    }
  }
  renamed["decoder.mask_token"] = at::zeros({1, 1, 4});
  return renamed;
}

TEST_F(MiniMaxH3Names, GiveTheSameFramesForTheVaeOfEveryProgram) {
  const std::filesystem::path data = std::filesystem::path(SPARSEREEL_TEST_DATA) / "minimax_h3/vae";
  const auto open = [&](const std::filesystem::path& file) {
    static const Part part = minimax_h3_vae_part();
    Component component = component_of(open_weights(file), part);
    component.config = read_json(data / "config.json");
    component.config_file = "vae/config.json";
    return component;
  };
  const Component plain = open(data / "diffusion_pytorch_model.safetensors");
  EXPECT_EQ(plain.names, nullptr);
  const NamedTensors renamed = vae_in_authors_names(data / "diffusion_pytorch_model.safetensors",
                                                    plain.config.at("decoder_attention_head_dim").get<int64_t>());
  ASSERT_TRUE(renamed.contains("decoder.transformer_blocks.0.attn.to_out.weight"));
  ASSERT_TRUE(renamed.contains("encoder.down.0.block.0.conv1.weight"));
  const auto frames_of = [&](const Component& component) {
    const at::Tensor latents = at::randn({1, plain.config.at("latent_channels").get<int64_t>(), 7, 4, 4},
                                         at::make_generator<at::CPUGeneratorImpl>(3));
    std::vector<at::Tensor> frames;
    load_minimax_h3_vae(component, at::kCPU, at::kFloat, VaeParts::both)
        ->decode(latents, {}, [&](const at::Tensor& some) { frames.push_back(some); }, {});
    return at::cat(frames, 2);
  };
  const at::Tensor expected = frames_of(plain);
  EXPECT_TRUE(frames_of(open(test::write_tensors(folder_ / "a.safetensors", renamed))).equal(expected));
  NamedTensors halves;
  for (const auto& [name, tensor] : renamed) halves[name] = tensor.to(at::kHalf);
  const at::Tensor rounded = frames_of(open(test::write_tensors(folder_ / "b.safetensors", halves)));
  EXPECT_TRUE(close_to(rounded, expected, 2e-2));
  EXPECT_EQ(minimax_h3_vae_part().sizes_by_tensors(plain.tensors),
            minimax_h3_vae_part().sizes_by_config(plain.config, "config.json"));
}

TEST_F(MiniMaxH3Names, GiveTheSameSoundFromWholeWeights) {
  const std::filesystem::path data = std::filesystem::path(SPARSEREEL_TEST_DATA) / "minimax_h3/sound";
  const auto open = [&](const std::filesystem::path& file) {
    static const Part part = minimax_h3_sound_vae_part();
    Component component = component_of(open_weights(file), part);
    component.config = read_json(data / "config.json");
    component.config_file = "audio_vae/config.json";
    return component;
  };
  const Component plain = open(data / "diffusion_pytorch_model.safetensors");
  WeightReader reader(plain, at::kCPU, at::kFloat);
  NamedTensors whole;
  for (const auto& [name, place] : plain.tensors) {
    const at::Tensor tensor = reader.tensor(name, place.second->shape);
    if (name.ends_with(".weight_g")) continue;
    const bool is_direction = name.ends_with(".weight_v");
    const std::string stem = name.substr(0, name.size() - 2);
    if (is_direction) {
      const at::Tensor lengths = reader.tensor(stem + "_g", {tensor.size(0), 1, 1});
      whole[stem] = tensor * (lengths / tensor.square().sum({1, 2}, true).sqrt());
    } else {
      whole[name] = tensor.clone();
    }
  }
  whole["latents_mean"] = at::zeros({2});
  const int64_t channels = plain.config.at("latent_channels").get<int64_t>();
  const at::Tensor latents = at::randn({1, 6, channels});
  const auto sound_of = [&](const Component& component) {
    return load_minimax_h3_sound_vae(component, at::kCPU)->decode(latents);
  };
  EXPECT_TRUE(close_to(sound_of(open(test::write_tensors(folder_ / "a.safetensors", whole))), sound_of(plain), 1e-5));
}

TEST_F(MiniMaxH3Names, ShowTheSizesOfTheSoundVae) {
  const std::filesystem::path data = std::filesystem::path(SPARSEREEL_TEST_DATA) / "minimax_h3/sound";
  const Part part = minimax_h3_sound_vae_part();
  const Component component = component_of(open_weights(data / "diffusion_pytorch_model.safetensors"), part);
  EXPECT_EQ(part.sizes_by_tensors(component.tensors), part.sizes_by_config(read_json(data / "config.json"), "c"));
}

}  // namespace
}  // namespace sparsereel::models
