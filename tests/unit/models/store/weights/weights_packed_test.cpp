// Tests that packed weights with LoRAs stay packed in memory, and give the same values as weights that are expanded
// when they are read.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/layers/fp8.h"
#include "models/layers/linear.h"
#include "models/store/weights/weights.h"
#include "tests/support/packed_layers.h"

namespace sparsereel::models {
namespace {

using test::throws_error;

/// Uses one layer of q, k and v in ggml's packed formats, written by the Python package gguf, and LoRAs for it.
class PackedWeightsWithLora : public ::testing::Test {
 protected:
  PackedWeightsWithLora() {
    at::manual_seed(7);
    component_.files.push_back(
        std::make_shared<TensorFile>(std::filesystem::path(SPARSEREEL_TEST_DATA) / "gguf" / "blocks.gguf"));
    for (const TensorEntry& entry : component_.files[0]->entries()) component_.tensors[entry.name] = {0, &entry};
    test::write_tensors(folder_ / "lora.safetensors", {{"up", at::randn({2, 3})},
                                                       {"down", at::randn({3, 256})},
                                                       {"up16", at::randn({2, 3}).to(at::kBFloat16)},
                                                       {"down16", at::randn({3, 256}).to(at::kBFloat16)},
                                                       {"diff", at::randn({2, 256})},
                                                       {"nan", at::full({2, 3}, NAN)}});
    lora_ = std::make_shared<TensorFile>(folder_ / "lora.safetensors");
    component_.deltas = {{"Q4_K", {delta("up", "down", 0.5), delta("up16", "down16", -2)}},
                         {"Q6_K", {delta("up16", "down16", 0.1)}}};
  }

  WeightDelta delta(const char* up, const char* down, double scale) const {
    return {
        .file = lora_, .up = lora_->find(up), .down = down == nullptr ? nullptr : lora_->find(down), .scale = scale};
  }
  static Parameter parameter(Linear& layer) {
    return {.names = {"Q4_K", "Q6_K", "Q2_K"},
            .stored = {2, 256},
            .shape = {6, 256},
            .fp8 = true,
            .scale = &layer.scale,
            .rows = &layer.rows};
  }
  Linear load(const WeightFormat& format) const {
    Linear layer;
    WeightReader(component_, at::kCPU, format).load(layer.weight, parameter(layer));
    return layer;
  }
  uint64_t bytes(const WeightFormat& format) const {
    Linear layer;
    return WeightReader(component_, at::kMeta, format).bytes(parameter(layer));
  }
  /// Returns the expected weight: reads q, k and v expanded, and joins them.
  at::Tensor expanded(at::ScalarType dtype) const {
    WeightReader reader(component_, at::kCPU, dtype);
    std::vector<at::Tensor> parts;
    for (const char* name : {"Q4_K", "Q6_K", "Q2_K"}) parts.push_back(reader.tensor(name, {2, 256}));
    return at::cat(parts);
  }
  static uint64_t held(const Linear& layer) {
    uint64_t sum = layer.weight.nbytes();
    for (const StoredRows& rows : layer.rows)
      for (const LowRank& delta : rows.deltas) sum += delta.up.nbytes() + delta.down.nbytes();
    return sum;
  }

  const test::TemporaryFolder folder_;
  Component component_;
  std::shared_ptr<TensorFile> lora_;
};

constexpr uint64_t kPackedBytes = 2 * 144 + (2 * 210 + 12) + (2 * 84 + 8);

TEST_F(PackedWeightsWithLora, StayPackedAndMatchExpandedWeights) {
  EXPECT_EQ(load(at::kFloat).rows.at(0).deltas.size(), 2U);
  EXPECT_TRUE(load(at::kFloat).in(at::kFloat).weight.allclose(expanded(at::kFloat), 0, 1e-6));
  EXPECT_TRUE(load(at::kBFloat16).in(at::kBFloat16).weight.equal(expanded(at::kBFloat16)));
}

TEST_F(PackedWeightsWithLora, TakeTheMemoryOfPackedBytesAndDeltas) {
  const uint64_t of_16 = 2 * (2 * 3 + 3 * 256), of_32 = 2 * of_16;
  EXPECT_EQ(bytes(at::kFloat), kPackedBytes + of_32 + 2 * of_16);
  EXPECT_EQ(held(load(at::kFloat)), bytes(at::kFloat));
  EXPECT_EQ(bytes(at::kBFloat16), kPackedBytes + 3 * of_16 + 2 * of_16) << "as a GPU takes fp32 (in_bf16())";
  component_.deltas.erase("Q4_K");
  EXPECT_EQ(bytes(at::kBFloat16), kPackedBytes + of_16);
  EXPECT_EQ(held(load(at::kBFloat16)), bytes(at::kBFloat16));
}

TEST_F(PackedWeightsWithLora, AreReorderedLikeExpandedWeights) {
  const at::Tensor order = at::tensor({1, 0, 2, 3, 5, 4}, at::kLong);
  for (const WeightFormat& format : {WeightFormat(at::kFloat), WeightFormat(at::kFloat, /*in_fp8=*/true)}) {
    Linear layer;
    Parameter ordered = parameter(layer);
    ordered.row_order = order;
    WeightReader(component_, at::kCPU, format).load(layer.weight, ordered);
    const Linear usual = load(format);
    EXPECT_EQ(layer.rows.size(), usual.rows.size());
    const auto numbers = [&](const Linear& each) {
      return each.is_fp8() ? each.weight.to(at::kFloat) * each.scale.unsqueeze(1) : each.in(at::kFloat).weight;
    };
    EXPECT_TRUE(numbers(layer).equal(numbers(usual).index_select(0, order)));
  }
}

TEST_F(PackedWeightsWithLora, DependOnTheScale) {
  const at::Tensor one = load(at::kFloat).in(at::kFloat).weight;
  component_.deltas.at("Q4_K")[0].scale = 1.5;
  const at::Tensor other = load(at::kFloat).in(at::kFloat).weight;
  EXPECT_FALSE(one.narrow(0, 0, 2).equal(other.narrow(0, 0, 2)));
  EXPECT_TRUE(other.allclose(expanded(at::kFloat), 0, 1e-6));
}

/// The change is a whole matrix of the weight's size, so keeping the weight packed would save little.
TEST_F(PackedWeightsWithLora, AreExpandedForWholeDifferences) {
  component_.deltas["Q2_K"] = {delta("diff", nullptr, 1)};
  EXPECT_TRUE(load(at::kFloat).rows.empty());
  EXPECT_TRUE(load(at::kFloat).weight.equal(expanded(at::kFloat)));
  EXPECT_EQ(bytes(at::kFloat), 4U * 6 * 256);
}

TEST_F(PackedWeightsWithLora, AreRequantizedForEightBitProducts) {
  const WeightFormat fp8(at::kFloat, /*in_fp8=*/true);
  const Linear layer = load(fp8);
  EXPECT_TRUE(layer.is_fp8());
  EXPECT_TRUE(layer.weight.view(at::kByte).equal(quantize_rows(expanded(at::kFloat)).values.view(at::kByte)));
  EXPECT_EQ(bytes(fp8), 6U * 256 + 4 * 6);
  Linear asked;
  EXPECT_TRUE(WeightReader(component_, at::kMeta, fp8).rounds_again(parameter(asked)));
  EXPECT_FALSE(WeightReader(component_, at::kMeta, at::kFloat).rounds_again(parameter(asked)));
}

TEST_F(PackedWeightsWithLora, NameAFileWhoseDeltasGiveNaNOrInf) {
  const std::string file = (folder_ / "lora.safetensors").string();
  component_.deltas["Q6_K"] = {delta("nan", "down", 1)};
  EXPECT_TRUE(throws_error([&] { load(at::kFloat); }, {file, "\"nan\" holds NaN or Inf"}));
  component_.deltas["Q6_K"] = {delta("up", "down", 1), delta("up", "down", 1e38)};
  EXPECT_TRUE(
      throws_error([&] { load(at::kFloat); }, {file, "with the scale 1e+38", "\"Q6_K\" larger than fp32 holds"}));
  component_.deltas["Q6_K"] = {delta("up", "down", 1e5)};
  EXPECT_TRUE(throws_error([&] { load(at::kHalf); }, {file, "\"Q6_K\" larger than fp16 holds"}));
}

}  // namespace
}  // namespace sparsereel::models
