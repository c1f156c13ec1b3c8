// Tests weights in ComfyUI's packed formats: they have the values that comfy-kitchen gives them, stay packed in memory,
// and take LoRAs like expanded weights. Also tests which files are refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hilbert/error.h"
#include "models/layers/int8.h"
#include "models/layers/linear.h"
#include "models/store/checkpoint/family.h"
#include "models/store/weights/layer_weights.h"
#include "models/store/weights/weights.h"
#include "tests/support/golden.h"
#include "tests/support/packed_layers.h"

namespace sparsereel::models {
namespace {

using test::throws_error;

const std::filesystem::path kFile = std::filesystem::path(SPARSEREEL_TEST_DATA) / "quantized" / "layers.safetensors";

Part part() {
  return {.role = "transformer", .classes = {"Model"}};
}

/// A layer of the test file. `bytes_of_8` is the memory that 64 columns of a row take, without a scale of the whole
/// row; 0 if the weight is expanded.
struct Case {
  const char* name;
  int64_t bytes_of_8;
};
constexpr Case kCases[] = {{"int8_one", 64},     {"int8_rows", 64},   {"convrot_4", 0},     {"convrot_16", 64},
                           {"convrot_64", 64},   {"convrot_256", 64}, {"convrot_1024", 64}, {"convrot_4096", 64},
                           {"header", 64},       {"nvfp4", 36},       {"nvfp4_padded", 0},  {"nvfp4_low_first", 36},
                           {"awq_scaled", 36},   {"mxfp8", 66},       {"w4a4", 32},         {"w4a8", 64},
                           {"w4a8_uniform", 64}, {"w6a8", 64},        {"w4a8_of_32", 64},   {"awq", 40}};

class QuantizedWeights : public ::testing::TestWithParam<Case> {
 protected:
  QuantizedWeights() : component_(component_of(open_weights(kFile), part())), golden_("quantized/golden") {}

  Parameter parameter(Linear& layer) const {
    const std::vector<int64_t> shape = golden_[GetParam().name].sizes().vec();
    return {.names = {std::string(GetParam().name) + ".weight"},
            .stored = shape,
            .shape = shape,
            .fp8 = true,
            .scale = &layer.scale,
            .rows = &layer.rows};
  }
  Linear load(const WeightFormat& format, at::Device device = at::kCPU) const {
    Linear layer;
    WeightReader(component_, device, format).load(layer.weight, parameter(layer));
    return layer;
  }

  Component component_;
  const test::Golden golden_;
};

TEST_P(QuantizedWeights, HaveTheValuesOfComfyKitchen) {
  const at::Tensor expected = golden_[GetParam().name];
  Linear asked = load(at::kFloat);
  EXPECT_TRUE(test::close_to(asked.in(at::kFloat).weight, expected, 1e-6));
  WeightReader reader(component_, at::kCPU, at::kFloat);
  const at::Tensor numbers = reader.tensor(std::string(GetParam().name) + ".weight", expected.sizes().vec());
  EXPECT_TRUE(numbers.equal(asked.in(at::kFloat).weight));
  EXPECT_TRUE(load(at::kBFloat16).in(at::kBFloat16).weight.equal(numbers.to(at::kBFloat16)));
}

TEST_P(QuantizedWeights, StayPacked) {
  Linear layer = load(at::kFloat);
  const std::vector<int64_t> shape = golden_[GetParam().name].sizes().vec();
  if (GetParam().bytes_of_8 == 0) {
    EXPECT_TRUE(layer.rows.empty()) << "rows that are no whole blocks are expanded";
    return;
  }
  EXPECT_EQ(layer.weight.numel(), shape[0] * shape[1] * GetParam().bytes_of_8 / 64);
  uint64_t held = 0;
  for (const at::Tensor* tensor : tensors_of({{&layer.weight, parameter(layer)}})) held += tensor->nbytes();
  Linear meta;
  const uint64_t planned = WeightReader(component_, at::kMeta, at::kFloat).bytes(parameter(meta));
  EXPECT_LE(held, planned);
  EXPECT_LE(planned, held + 16);
  EXPECT_EQ(load(at::kFloat, at::kMeta).weight.nbytes(), planned - (held - layer.weight.nbytes()));
}

TEST_P(QuantizedWeights, TakeLorasLikeExpandedWeights) {
  const at::Tensor expanded = load(at::kFloat).in(at::kFloat).weight;
  const test::TemporaryFolder folder;
  at::manual_seed(3);
  const at::Tensor up = at::randn({expanded.size(0), 2}), down = at::randn({2, expanded.size(1)});
  test::write_tensors(folder / "lora.safetensors", {{"up", up}, {"down", down}});
  const auto file = std::make_shared<TensorFile>(folder / "lora.safetensors");
  component_.deltas[std::string(GetParam().name) + ".weight"] = {
      {.file = file, .up = file->find("up"), .down = file->find("down"), .scale = 0.5}};
  EXPECT_TRUE(test::close_to(load(at::kFloat).in(at::kFloat).weight, expanded.addmm(up, down, 1, 0.5), 1e-6));
}

TEST_P(QuantizedWeights, MultiplyInIntegers) {
  const Linear layer = load({at::kFloat, Products::int8});
  if (layer.rows.empty()) return;  // expanded, because its rows are not whole blocks
  at::manual_seed(5);
  const at::Tensor numbers = golden_[GetParam().name], x = at::randn({5, numbers.size(1)});
  const at::Tensor exact = at::linear(x, numbers);
  EXPECT_TRUE(multiplies_in_int8(x, layer));
  EXPECT_LT((linear(x, layer) - exact).norm().item<double>(), 0.04 * exact.norm().item<double>());
  EXPECT_EQ(layer.weight.numel(), numbers.numel());
}

TEST_P(QuantizedWeights, MultiplyInIntegersByDefaultIfTheyAreStoredAsIntegers) {
  const Linear layer = load({at::kFloat, Products::stored}), packed = load(at::kFloat);
  if (packed.rows.empty()) return;  // expanded, because its rows are not whole blocks
  EXPECT_TRUE(layer.weight.equal(packed.weight));
  EXPECT_EQ(layer.rows.front().multiplies, packed.rows.front().dtype == Dtype::i8);
}

TEST_P(QuantizedWeights, MakeEightBitWeightsOrStayAsStored) {
  const Linear layer = load({at::kFloat, /*in_fp8=*/true});
  const at::Tensor numbers =
      layer.is_fp8() ? layer.weight.to(at::kFloat) * layer.scale.unsqueeze(1) : layer.in(at::kFloat).weight;
  EXPECT_TRUE(test::close_to(numbers, golden_[GetParam().name], 0.05));
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedWeights, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(QuantizedFile, HasNoTensorThatNobodyReads) {
  const Component component = component_of(open_weights(kFile), part());
  WeightReader reader(component, at::kCPU, at::kFloat);
  const test::Golden golden("quantized/golden");
  for (const Case& each : kCases) reader.tensor(std::string(each.name) + ".weight", golden[each.name].sizes().vec());
  EXPECT_NO_THROW(reader.check_complete());
}

/// Tests files with a single layer "blocks.0.q". read() returns the layer's expanded weight.
class SmallFile : public ::testing::Test {
 protected:
  using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

  void write(const Tensors& tensors, const std::string& mark = {}) {
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : tensors) {
      const Dtype dtype = tensor.scalar_type() == at::kChar            ? Dtype::i8
                          : tensor.scalar_type() == at::kByte          ? Dtype::u8
                          : tensor.scalar_type() == at::kFloat8_e4m3fn ? Dtype::f8_e4m3
                                                                       : Dtype::f32;
      views.push_back({"blocks.0.q." + name,
                       dtype,
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
    }
    if (!mark.empty())
      views.push_back(
          {"blocks.0.q.comfy_quant", Dtype::u8, {static_cast<int64_t>(mark.size())}, std::as_bytes(std::span(mark))});
    write_safetensors(folder_ / "wan.safetensors", views);
  }
  at::Tensor read(const std::vector<int64_t>& shape) const {
    const Component component = component_of(open_weights(folder_ / "wan.safetensors"), part());
    WeightReader reader(component, at::kCPU, at::kFloat);
    const at::Tensor weight = reader.tensor("blocks.0.q.weight", shape).clone();
    reader.check_complete();
    return weight;
  }
  testing::AssertionResult is_refused(const std::vector<int64_t>& shape, std::vector<std::string> words) const {
    words.insert(words.end(), {"wan.safetensors", "blocks.0.q"});
    return throws_error([&] { read(shape); }, words);
  }

  static at::Tensor codes(int64_t rows, int64_t columns) { return at::ones({rows, columns}, at::kChar); }

  const test::TemporaryFolder folder_;
};

TEST_F(SmallFile, ReadsQuanto) {
  const at::Tensor weight = at::randint(-128, 128, {3, 8}, at::kChar), scale = at::rand({3, 1}) + 0.1;
  write({{"weight._data", weight},
         {"weight._scale", scale},
         {"input_scale", at::ones({})},
         {"output_scale", at::ones({})}});
  EXPECT_TRUE(read({3, 8}).equal(weight.to(at::kFloat) * scale));
}

TEST_F(SmallFile, RotatesAFormatThatAlwaysDoesAlsoWithoutADescription) {
  const at::Tensor weight = at::randint(-128, 128, {3, 128}, at::kChar), relative = at::rand({3, 16});
  const Tensors tensors = {{"weight", weight}, {"weight_s_rel", relative}, {"weight_s_channel", at::ones({3})}};
  write(tensors, R"({"format":"asym_w4a8_int8","convrot_groupsize":256})");
  const at::Tensor described = read({3, 256});
  write(tensors);
  EXPECT_TRUE(read({3, 256}).equal(described));
}

TEST_F(SmallFile, RefusesRotationsThatDoNotFit) {
  const at::Tensor scale = at::ones({2});
  for (const auto& [columns, group, words] :
       {std::tuple(40, 16, "ConvRot in groups of 16, which do not divide its 40 columns"),
        {64, 8, "ConvRot in groups of 8, not a power of 4"}}) {
    write({{"weight", codes(2, columns)}, {"weight_scale", scale}},
          R"({"format":"int8_tensorwise","convrot":true,"convrot_groupsize":)" + std::to_string(group) + "}");
    EXPECT_TRUE(is_refused({2, columns}, {"int8_convrot", words}));
  }
  write({{"weight", codes(2, 64)}, {"weight_scale", scale}},
        R"({"format":"int8_tensorwise","params":{"convrot":true,"convrot_groupsize":-4}})");
  EXPECT_TRUE(is_refused({2, 64}, {"int8_tensorwise with \"convrot_groupsize\" -4"}));
}

TEST_F(SmallFile, RefusesScalesOfOtherShapes) {
  const at::Tensor packed = at::zeros({16, 16}, at::kByte), one = at::ones({});
  const at::Tensor tiled = at::zeros({128, 4}, at::kByte);
  write({{"weight", packed}, {"weight_scale", at::zeros({16, 2}, at::kByte)}, {"weight_scale_2", one}},
        R"({"format":"nvfp4"})");
  EXPECT_TRUE(is_refused({16, 32}, {"nvfp4", "weight_scale\" of the shape [16, 2] instead of [128, 4]"}));
  write({{"weight", packed}, {"weight_scale", tiled}}, R"({"format":"nvfp4"})");
  EXPECT_TRUE(is_refused({16, 32}, {"nvfp4", "no \"weight_scale_2\" beside its weight"}));
  write({{"weight", codes(2, 32)}, {"weight_scale", at::ones({3})}},
        R"({"format":"convrot_w4a4","convrot_groupsize":16})");
  EXPECT_TRUE(is_refused({2, 64}, {"convrot_w4a4", "weight_scale\" of the shape [3] instead of [2]"}));
  write({{"weight", codes(2, 32)}, {"weight_scale", at::ones({1, 3})}, {"weight_zeros", at::ones({1, 2})}});
  EXPECT_TRUE(is_refused({2, 64}, {"awq_w4a16", "weight_scale\" of the shape [1, 3] instead of [1, 2]"}));
  write({{"weight", codes(2, 32)}, {"weight_s_rel", at::ones({2, 4})}, {"weight_s_channel", at::ones({3})}},
        R"({"format":"asym_w4a8_int8","convrot_groupsize":64})");
  EXPECT_TRUE(is_refused({2, 64}, {"asym_w4a8_int8", "weight_s_channel\" of the shape [3] instead of [2]"}));
  write({{"weight", codes(2, 64)}, {"weight_scale", at::ones({2})}, {"pre_quant_scale", at::ones({63})}},
        R"({"format":"int8_tensorwise"})");
  EXPECT_TRUE(is_refused({2, 64}, {"pre_quant_scale\" of the shape [63] instead of [64]"}));
  write({{"weight", codes(2, 64)}, {"weight_scale", at::ones({3})}});
  EXPECT_TRUE(is_refused({2, 64}, {"weight_scale\" is [3], expected [2] (scale of a weight in int8, "}));
  write({{"weight", codes(2, 64)}, {"weight_scale", at::ones({2, 2})}});
  EXPECT_TRUE(is_refused({2, 64}, {"has a scale for each block of a row", "weight_scale\"", "supported in int8"}));
}

TEST_F(SmallFile, RefusesFourBitsInPartsOfABlock) {
  for (const int64_t columns : {12, 20}) {
    write({{"weight", codes(2, columns / 2)}, {"weight_scale", at::ones({2})}},
          R"({"format":"convrot_w4a4","convrot_groupsize":4})");
    EXPECT_TRUE(is_refused({2, columns}, {"convrot_w4a4", "columns, not a multiple of 8"}));
  }
}

TEST_F(SmallFile, RefusesNumbersInBytes) {
  const at::Tensor nibbles = codes(2, 128), bytes = at::full({2}, 0x38, at::kByte), ones = at::ones({2});
  write({{"weight", nibbles}, {"weight_scale", bytes}}, R"({"format":"convrot_w4a4"})");
  EXPECT_TRUE(is_refused({2, 256}, {"weight_scale\"", "convrot_w4a4", "is stored as U8"}));
  const at::Tensor relative = at::full({2, 16}, 0x38, at::kByte);
  const std::string mark = R"({"format":"asym_w4a8_int8"})";
  write({{"weight", nibbles}, {"weight_s_rel", relative}, {"weight_s_channel", bytes}}, mark);
  EXPECT_TRUE(is_refused({2, 256}, {"weight_s_channel\"", "asym_w4a8_int8", "is stored as U8"}));
  write({{"weight", nibbles}, {"weight_s_rel", relative}, {"weight_s_channel", ones}}, mark);
  const at::Tensor stored_as_bytes = read({2, 256});
  write({{"weight", nibbles}, {"weight_s_rel", at::ones({2, 16})}, {"weight_s_channel", ones}}, mark);
  EXPECT_TRUE(read({2, 256}).equal(stored_as_bytes));
}

/// If the scales fill whole tiles, their shape is the same in rows and in tiles. So the file must tell the order.
TEST_F(SmallFile, RefusesScalesInAnUnknownOrder) {
  const at::Tensor codes = at::randint(0, 256, {128, 32}, at::kByte), one = at::ones({});
  const at::Tensor scales = at::randint(1, 100, {128, 4}, at::kByte);
  write({{"weight", codes}, {"weight_scale", scales}, {"weight_scale_2", one}});
  EXPECT_TRUE(is_refused({128, 64}, {"nvfp4", "weight_scale\" [128, 4] in an order that nothing describes"}));
  write({{"weight", codes}, {"weight_scale", scales}, {"alpha", one}, {"input_global_scale", one}});
  const at::Tensor tiled = read({128, 64});
  const at::Tensor swapped = codes.bitwise_left_shift(4).bitwise_or(codes.bitwise_right_shift(4));
  write({{"weight", swapped}, {"weight_scale", scales}, {"weight_scale_2", one}}, R"({"format":"nvfp4"})");
  EXPECT_TRUE(read({128, 64}).equal(tiled));
  write({{"weight", at::zeros({128, 128}).to(at::kFloat8_e4m3fn)}, {"weight_scale", scales}});
  EXPECT_TRUE(is_refused({128, 128}, {"mxfp8", "weight_scale\" [128, 4] in an order that nothing describes"}));
}

/// If the weight has fewer rows than a tile, the shape of the scales shows that they are stored in rows.
TEST_F(SmallFile, ReadsScalesInRows) {
  const at::Tensor codes = at::full({16, 16}, 0x22, at::kByte), scales = at::full({16, 2}, 0x38, at::kByte);
  scales[1][0] = 0x40;
  write({{"weight", codes}, {"weight_scale", scales}, {"weight_scale_2", at::ones({})}});
  at::Tensor expected = at::ones({16, 32});
  expected[1].narrow(0, 0, 16).fill_(2);
  EXPECT_TRUE(read({16, 32}).equal(expected));
}

TEST_F(SmallFile, RefusesScalesThatAreNoNumbers) {
  const at::Tensor packed = at::zeros({16, 16}, at::kByte);
  for (const float bad : {NAN, INFINITY}) {
    const at::Tensor wrong = at::full({}, bad);
    write({{"weight", codes(2, 64)}, {"weight_scale", wrong}}, R"({"format":"int8_tensorwise"})");
    EXPECT_TRUE(is_refused({2, 64}, {"weight_scale", "a weight in int8", "holds NaN or infinity"}));
    write({{"weight", packed}, {"weight_scale", at::zeros({128, 4}, at::kByte)}, {"weight_scale_2", wrong}},
          R"({"format":"nvfp4"})");
    EXPECT_TRUE(is_refused({16, 32}, {"weight_scale_2", "nvfp4", "holds NaN or infinity"}));
  }
  const at::Tensor all = at::full({128, 4}, 255, at::kByte);
  write({{"weight", packed}, {"weight_scale", all}, {"weight_scale_2", at::ones({})}}, R"({"format":"nvfp4"})");
  EXPECT_TRUE(is_refused({16, 32}, {"weight_scale\"", "nvfp4", "holds NaN or infinity"}));
  write({{"weight", at::zeros({32, 32}).to(at::kFloat8_e4m3fn)}, {"weight_scale", all}});
  EXPECT_TRUE(is_refused({32, 32}, {"weight_scale\"", "mxfp8", "holds NaN or infinity"}));
}

}  // namespace
}  // namespace sparsereel::models
