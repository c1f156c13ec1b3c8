// Files of quantized weights describe their format. Tests which descriptions are accepted and which are refused.
#include "models/store/checkpoint/quantization.h"

#include <memory>
#include <utility>

#include "models/store/checkpoint/part_files.h"
#include "models/store/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::TemporaryFolder;
using test::throws_error;

class Quantization : public ::testing::Test {
 protected:
  /// Writes a file with the layer "q": its weight in `dtype`, its description, and one more tensor with the name
  /// `other`.
  void write(const std::string& description, const std::map<std::string, std::string>& metadata = {},
             const std::string& other = "q.weight_scale", Dtype dtype = Dtype::f8_e4m3) {
    const std::string eight(8, '\1');
    std::vector<TensorView> tensors = {{"q.weight", dtype, {8}, std::as_bytes(std::span(eight))},
                                       {other, Dtype::u8, {8}, std::as_bytes(std::span(eight))}};
    if (!description.empty())
      tensors.push_back({"q.comfy_quant",
                         Dtype::u8,
                         {static_cast<int64_t>(description.size())},
                         std::as_bytes(std::span(description))});
    write_safetensors(path_, tensors, metadata);
  }
  void check() const { check_quantization({std::make_shared<TensorFile>(path_)}); }
  testing::AssertionResult is_refused(const std::vector<std::string>& parts) const {
    return throws_error([&] { check(); }, parts);
  }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "wan.safetensors";
};

TEST_F(Quantization, AcceptsEightBitsWithScales) {
  for (const auto& [format, dtype] :
       {std::pair("float8_e4m3fn", Dtype::f8_e4m3), {"float8_e5m2", Dtype::f8_e5m2}, {"int8_tensorwise", Dtype::i8}}) {
    const std::string start = R"({"format":")" + std::string(format) + "\"";
    const std::string description = start + R"(,"full_precision_matrix_mult":true})";
    write(description,
          {{"_quantization_metadata",
            R"({"format_version":"1.0","layers":{"q":)" + description + R"(,"k":")" + format + "\"}}"}},
          "q.weight_scale", dtype);
    EXPECT_NO_THROW(check()) << format;
    for (const char* more : {R"(,"convrot":false,"convrot_groupsize":256)", R"(,"params":{"convrot":false})",
                             R"(,"params":null,"per_row":true,"orig_dtype":"bfloat16","orig_shape":[8])"}) {
      write(start + more + "}", {}, "q.input_scale", dtype);
      EXPECT_NO_THROW(check()) << format << more;
    }
  }
}

TEST_F(Quantization, RefusesOtherFormatsByName) {
  for (const char* format : {"svdquant_w4a4", "float8_e4m3fn_blockwise", "int8_blockwise"}) {
    write(R"({"format":")" + std::string(format) + "\"}");
    EXPECT_TRUE(is_refused({"wan.safetensors", "\"q\"", format, "not supported"}));
    write(R"({"format":"float8_e4m3fn"})",
          {{"_quantization_metadata", R"({"layers":{"k":{"format":")" + std::string(format) + "\"}}}"}});
    EXPECT_TRUE(is_refused({"wan.safetensors", "\"k\"", format, "not supported"}));
  }
  write(R"({"format":"float8_e4m3fn"})", {}, "q.weight_scale_2");
  EXPECT_TRUE(is_refused({"\"q\"", "float8_e4m3fn with \"weight_scale_2\""}));
}

/// A description may give parameters, such as those of ConvRot, under "params" or beside the format.
TEST_F(Quantization, RefusesUnknownParametersOfADescription) {
  for (const std::string key : {R"("convrot":1)", R"("convrot":"yes")", R"("group_size":64)",
                                R"("linear_dtype":"int4")", R"("num_experts":8)", R"("something":null)"}) {
    const std::string name = key.substr(1, key.find('"', 1) - 1);
    for (const std::string& keys : {key, R"("params":{"convrot_groupsize":256,)" + key + "}"}) {
      write(R"({"format":"int8_tensorwise",)" + keys + "}", {}, "q.weight_scale", Dtype::i8);
      EXPECT_TRUE(is_refused({"wan.safetensors", "\"q\"", "int8_tensorwise with", name, "not supported"})) << keys;
      write("", {{"_quantization_metadata", R"({"layers":{"q":{"format":"int8_tensorwise",)" + keys + "}}}"}},
            "q.weight_scale", Dtype::i8);
      EXPECT_TRUE(is_refused({"\"q\"", name})) << keys;
    }
  }
  write(R"({"format":"int8_tensorwise","params":[1]})", {}, "q.weight_scale", Dtype::i8);
  EXPECT_TRUE(is_refused({"\"q\"", "\"params\""}));
}

TEST_F(Quantization, RefusesUnknownTensorsNextToAnEightBitWeight) {
  for (const std::string name :
       {"weight_scale_2", "weight_s_channel", "weight_codebook", "weight_scale_inv", "anything"}) {
    write(R"({"format":"float8_e4m3fn"})", {}, "q." + name);
    EXPECT_TRUE(is_refused({"wan.safetensors", "\"q\"", name, "not supported"}));
    write("", {}, "q." + name, Dtype::i8);
    EXPECT_TRUE(is_refused({"\"q\"", name})) << "without a description";
  }
  write("", {}, "k.weight_scale_inv");
  EXPECT_NO_THROW(check()) << "of another layer, which is not in 8 bits";
  write("", {}, "q");
  EXPECT_NO_THROW(check()) << "called as the layer";
}

TEST_F(Quantization, RefusesAWeightThatContradictsItsDescription) {
  write(R"({"format":"float8_e4m3fn"})", {}, "q.weight_scale", Dtype::i8);
  EXPECT_TRUE(is_refused({"\"q\"", "F8_E4M3 but stored as I8"}));
}

/// A weight and the tensors that belong to it may be in different shards.
TEST_F(Quantization, ChecksAllShardsTogether) {
  const std::string eight(8, '\1');
  write("", {}, "k.bias");
  const std::filesystem::path second = folder_ / "second.safetensors";
  write_safetensors(second, {{"q.weight_scale_inv", Dtype::u8, {8}, std::as_bytes(std::span(eight))}});
  EXPECT_NO_THROW(check());
  EXPECT_TRUE(throws_error(
      [&] {
        check_quantization({std::make_shared<TensorFile>(path_), std::make_shared<TensorFile>(second)});
      },
      {"second.safetensors", "\"q\"", "weight_scale_inv"}));
}

/// The description's name of a layer may have a prefix or an ending. A description without a layer must be refused,
/// because the weight would be read without its rotation.
TEST_F(Quantization, FindsTheLayersThatADescriptionMeans) {
  const auto metadata = [](const std::string& name) {
    return std::map<std::string, std::string>{
        {"_quantization_metadata", R"({"layers":{")" + name + R"(":{"format":"float8_e5m2"}}})"}};
  };
  for (const char* name : {"q", "q.weight", "model.diffusion_model.q", "transformer.q.weight", "model.q"}) {
    write("", metadata(name), "q.weight_scale", Dtype::i8);
    EXPECT_TRUE(is_refused({"\"q\"", "F8_E5M2 but stored as I8"})) << name;
  }
  const std::string rotated = R"({"format":"int8_tensorwise","convrot":true})";
  write("", {{"_quantization_metadata", R"({"layers":{"k":)" + rotated + "}}"}}, "q.weight_scale", Dtype::i8);
  EXPECT_TRUE(is_refused({"wan.safetensors", "\"k\"", "int8_convrot without a weight of this name"}));
  write("", {{"_quantization_metadata", R"({"layers":{"k":"nvfp4"}})"}});
  EXPECT_TRUE(is_refused({"wan.safetensors", "\"k\"", "nvfp4 without a weight of this name"}));
}

TEST_F(Quantization, RefusesDescriptionsInAnotherForm) {
  for (const char* text : {R"({"layers":["q"]})", R"({"q":"int8_tensorwise"})", "[]", "8"}) {
    write("", {{"_quantization_metadata", text}});
    EXPECT_TRUE(is_refused({"wan.safetensors", "_quantization_metadata has no object \"layers\""})) << text;
  }
  write("", {{"_quantization_metadata", "{}"}});
  EXPECT_NO_THROW(check());
  write("", {}, "q.comfy_quant");
  EXPECT_TRUE(is_refused({"wan.safetensors: q.comfy_quant", "not valid JSON"}));
  const std::string mark = R"({"convrot":true})";
  write_safetensors(path_, {{"q.comfy_quant", Dtype::i8, {16}, std::as_bytes(std::span(mark))}});
  EXPECT_TRUE(is_refused({"wan.safetensors", "\"q\"", "\"q.comfy_quant\" describes in I8"}));
}

TEST_F(Quantization, IsCountedByWeights) {
  const std::string bytes(8192, '\1');
  const auto types = [&](const std::vector<std::pair<std::string, std::pair<Dtype, std::vector<int64_t>>>>& tensors) {
    std::vector<TensorView> views;
    for (const auto& [name, kind] : tensors) {
      size_t size = kind.first == Dtype::f32 ? 4 : 1;
      for (const int64_t each : kind.second) size *= static_cast<size_t>(each);
      views.push_back({name, kind.first, kind.second, std::as_bytes(std::span(bytes).first(size))});
    }
    write_safetensors(path_, views);
    const StoredWeights weights = open_weights(path_);
    return types_of(weights.tensors, quantized_layers(weights.tensors, weights.files));
  };
  const std::vector<int64_t> one = {1};
  EXPECT_EQ(types({{"q.weight._data", {Dtype::i8, {2, 8}}},
                   {"q.weight._scale", {Dtype::f32, {2, 1}}},
                   {"q.input_scale", {Dtype::f32, one}}}),
            "I8 with scales 1");
  EXPECT_EQ(types({{"q.weight", {Dtype::u8, {16, 16}}},
                   {"q.weight_scale", {Dtype::f8_e4m3, {128, 4}}},
                   {"q.alpha", {Dtype::f32, one}},
                   {"q.input_global_scale", {Dtype::f32, one}},
                   {"k.alpha", {Dtype::f32, one}}}),
            "F32 1, nvfp4 1");
}

TEST_F(Quantization, RefusesEmptyOrInvalidDescriptions) {
  for (const char* description : {"{}", R"({"format":8})", "[]", "null"}) {
    write(description);
    EXPECT_TRUE(is_refused({"\"q\": its comfy_quant names no format"})) << description;
  }
  write("not json");
  EXPECT_TRUE(is_refused({"wan.safetensors: q.comfy_quant", "not valid JSON"}));
}

}  // namespace
}  // namespace sparsereel::models
