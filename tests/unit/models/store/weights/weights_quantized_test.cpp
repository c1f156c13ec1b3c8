// Tests that weights in each of ComfyUI's formats have the values that comfy-kitchen gives them, stay packed, and take
// LoRAs like expanded weights.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hilbert/error.h"
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

/// A layer of the file, and the bytes of its rows in memory, without scales of rows.
struct Case {
  const char* name;
  int64_t bytes_of_8;  // per 64 columns
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

}  // namespace
}  // namespace sparsereel::models
