// Tests 8-bit weights: quantizing weights of 16 and 32 bits, reading stored 8-bit weights, and counting their bytes.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/layers/linear.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/store/weights/layer_weights.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

const WeightFormat kFp8(at::kBFloat16, /*in_fp8=*/true);

class Fp8Weights : public ::testing::Test {
 protected:
  Fp8Weights() { at::manual_seed(5); }

  void write(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
    static const std::map<at::ScalarType, Dtype> kStored = {
        {at::kFloat, Dtype::f32},           {at::kBFloat16, Dtype::bf16}, {at::kFloat8_e4m3fn, Dtype::f8_e4m3},
        {at::kFloat8_e5m2, Dtype::f8_e5m2}, {at::kChar, Dtype::i8},       {at::kByte, Dtype::u8}};
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : tensors)
      views.push_back({name,
                       kStored.at(tensor.scalar_type()),
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
    write_safetensors(folder_ / "model.safetensors", views);
    component_ = {};
    component_.class_name = "CogVideoXTransformer3DModel";
    component_.origin = folder_.path();
    component_.config_file = (folder_ / "config.json").string();
    component_.files.push_back(std::make_shared<TensorFile>(folder_ / "model.safetensors"));
    for (const TensorEntry& entry : component_.files[0]->entries()) component_.tensors[entry.name] = {0, &entry};
  }

  /// Adds a LoRA that changes the tensor `name` by 2 * up * down.
  void add_lora(const char* name) {
    const std::pair<const char*, const at::Tensor*> tensors[] = {{"up", &up_}, {"down", &down_}};
    std::vector<TensorView> views;
    for (const auto& [file_name, tensor] : tensors)
      views.push_back({file_name,
                       Dtype::f32,
                       tensor->sizes().vec(),
                       {static_cast<const std::byte*>(tensor->const_data_ptr()), tensor->nbytes()}});
    write_safetensors(folder_ / "lora.safetensors", views);
    const auto file = std::make_shared<TensorFile>(folder_ / "lora.safetensors");
    component_.deltas[name] = {{.file = file, .up = file->find("up"), .down = file->find("down"), .scale = 2}};
  }
  bool rounds_again(const WeightFormat& format) const {
    const WeightReader reader(component_, at::kMeta, format);
    Linear layer;
    return models::rounds_again(slots_of([&](const Visit& visit) {
                                  layer.packed_weights(in_fp8(visit), {"q", "k"}, 16, 32, false);
                                }),
                                reader);
  }

  /// Loads q and k into one layer, one below the other. The layer may be in 8 bits.
  Linear load(const WeightFormat& format, at::Device device = at::kCPU) const {
    WeightReader reader(component_, device, format);
    Linear layer;
    layer.packed_weights(in_fp8(reader.loads()), {"q", "k"}, 16, 32, /*has_bias=*/false);
    reader.check_complete();
    return layer;
  }

  std::string complaint() const {
    try {
      load(kFp8, at::kMeta);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  static at::Tensor back(const Linear& layer) { return layer.weight.to(at::kFloat) * layer.scale.unsqueeze(1); }

  c10::InferenceMode inference_;
  const test::TemporaryFolder folder_;
  Component component_;
  const at::Tensor q_ = at::randn({16, 32}), k_ = at::randn({16, 32}) * 100;
  const at::Tensor up_ = at::randn({16, 2}), down_ = at::randn({2, 32});
  const at::Tensor q8_ = q_.to(at::kFloat8_e4m3fn), k8_ = q_.flip(0).to(at::kFloat8_e4m3fn);
};

TEST_F(Fp8Weights, AreQuantizedDirectlyFromStoredValues) {
  write({{"q.weight", q_}, {"k.weight", k_}});
  EXPECT_FALSE(rounds_again(kFp8));
  const Linear layer = load(kFp8);
  const Activation expected = quantize_rows(at::cat({q_, k_}));
  EXPECT_TRUE(layer.weight.view(at::kByte).equal(expected.values.view(at::kByte)));
  EXPECT_TRUE(layer.scale.equal(expected.scale.view({32})));
  EXPECT_FALSE(load(at::kBFloat16).is_fp8());
}

TEST_F(Fp8Weights, AreReorderedForEveryStoredFormat) {
  const at::Tensor order = at::cat({at::arange(16).flip(0), at::arange(16, 32)}).to(at::kLong);
  const at::Tensor scale = at::rand({16}) + 0.1;
  for (const bool stored_small : {false, true}) {
    if (stored_small)
      write({{"q.weight", q8_}, {"q.weight_scale", scale}, {"k.weight", k8_}});
    else
      write({{"q.weight", q_}, {"k.weight", k_}});
    for (const WeightFormat& format : {WeightFormat(at::kFloat), kFp8}) {
      WeightReader reader(component_, at::kCPU, format);
      Linear layer;
      const Visit loads = reader.loads(), ordered = in_row_order(loads, order);
      layer.packed_weights(in_fp8(ordered), {"q", "k"}, 16, 32, /*has_bias=*/false);
      const Linear usual = load(format);
      const auto numbers = [](const Linear& each) { return each.is_fp8() ? back(each) : each.in(at::kFloat).weight; };
      EXPECT_TRUE(numbers(layer).equal(numbers(usual).index_select(0, order)));
      EXPECT_FALSE(numbers(layer).equal(numbers(usual)));
    }
  }
}

TEST_F(Fp8Weights, AreRoundedFromSixteenBitsForARandomModel) {
  component_.random_seed = 3;
  const Linear fp8 = load(kFp8), bf16 = load(at::kBFloat16);
  EXPECT_TRUE(fp8.weight.view(at::kByte).equal(quantize_rows(bf16.weight).values.view(at::kByte)));
}

TEST_F(Fp8Weights, ApplyOnlyToLinearLayersInMultiplesOf16) {
  component_.random_seed = 3;
  WeightReader reader(component_, at::kCPU, kFp8);
  const Visit loads = reader.loads(), visit = in_fp8(loads);
  Linear fits, wide, tall, outside;
  at::Tensor norm;
  fits.weights(visit, "a", 48, 16);
  wide.weights(visit, "b", 48, 24);
  tall.weights(visit, "c", 8, 16);
  outside.weights(loads, "d", 48, 16);
  visit(norm, parameter("norm.weight", {16, 16}));
  EXPECT_TRUE(fits.is_fp8());
  EXPECT_EQ(fits.bias.scalar_type(), at::kBFloat16);
  for (const Linear* layer : {&wide, &tall, &outside}) {
    EXPECT_FALSE(layer->is_fp8());
    EXPECT_EQ(layer->weight.scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(norm.scalar_type(), at::kBFloat16);
}

TEST_F(Fp8Weights, AreReadUnchangedIfStoredInEightBits) {
  const at::Tensor whole = at::full({}, 0.25), one = at::full({1}, 0.5), rows = at::rand({16}) + 0.1;
  const auto scale_of = [](const at::Tensor& scale) { return (at::ones({16}) * scale.view({-1})); };
  for (const auto& [name, scale] : {std::pair("scale_weight", whole),
                                    {"scale_weight", one},
                                    {"weight_scale", whole},
                                    {"weight_scale", rows},
                                    {"weight_scale", rows.view({16, 1})}}) {
    SCOPED_TRACE(testing::Message() << name << " " << scale.sizes());
    write({{"q.weight", q8_},
           {"k.weight", k8_},
           {std::string("q.") + name, scale},
           {"q.scale_input", one},
           {"scaled_fp8", at::empty({0}, at::kFloat8_e4m3fn)}});
    const Linear fp8 = load(kFp8);
    EXPECT_TRUE(fp8.weight.view(at::kByte).equal(at::cat({q8_.view(at::kByte), k8_.view(at::kByte)})));
    EXPECT_TRUE(fp8.scale.equal(at::cat({scale_of(scale), at::ones({16})})));  // without a stored scale, the scale is 1
    const Linear bf16 = load(at::kBFloat16);  // stored in 8 bits, expanded for each product
    EXPECT_FALSE(bf16.is_fp8());
    EXPECT_EQ(bf16.weight.nbytes(), fp8.weight.nbytes());
    EXPECT_TRUE(bf16.in(at::kBFloat16).weight.equal(back(fp8).to(at::kBFloat16)));
    EXPECT_EQ(load(kFp8, at::kMeta).weight.sizes(), at::IntArrayRef({32, 32}));
  }
}

/// For products in fp8, a weight is expanded, the LoRA's change is added, and the sum is quantized again. For products
/// in bf16, the weight and the change stay separate.
TEST_F(Fp8Weights, AreRequantizedWithALoraOnlyForEightBitProducts) {
  write({{"q.weight", q8_}, {"q.weight_scale", at::full({}, 0.25)}, {"k.weight", k8_}});
  EXPECT_FALSE(rounds_again(kFp8));
  add_lora("q.weight");
  EXPECT_TRUE(rounds_again(kFp8));
  EXPECT_FALSE(rounds_again(at::kBFloat16));
  const at::Tensor q = (q8_.to(at::kFloat) * 0.25).addmm_(up_, down_, 1, 2), k = k8_.to(at::kFloat);
  const at::Tensor expected = at::cat({q, k});
  const Linear fp8 = load(kFp8), bf16 = load(at::kBFloat16);
  EXPECT_TRUE(fp8.weight.view(at::kByte).equal(quantize_rows(expected).values.view(at::kByte)));
  EXPECT_EQ(bf16.weight.nbytes(), 32U * 32);
  EXPECT_TRUE(bf16.in(at::kBFloat16).weight.equal(expected.to(at::kBFloat16)));
}

TEST_F(Fp8Weights, KeepOtherEightBitFormatsWithALora) {
  const at::Tensor q = at::randint(-127, 128, {16, 32}, at::kChar), k = at::randint(-127, 128, {16, 32}, at::kChar);
  write({{"q.weight", q}, {"q.weight_scale", at::full({}, 0.01)}, {"k.weight", k}, {"k.weight_scale", at::ones({})}});
  add_lora("k.weight");
  const at::Tensor expected = at::cat({q.to(at::kFloat) * 0.01F, k.to(at::kFloat).addmm_(up_, down_, 1, 2)});
  for (const WeightFormat& format : {kFp8, WeightFormat(at::kBFloat16)}) {
    const Linear layer = load(format);
    EXPECT_FALSE(layer.is_fp8());
    EXPECT_FALSE(rounds_again(format));
    EXPECT_EQ(layer.weight.nbytes(), 32U * 32);
    EXPECT_TRUE(layer.in(at::kBFloat16).weight.equal(expected.to(at::kBFloat16)));
  }
}

TEST_F(Fp8Weights, AreRequantizedIfOnlyPartlyStoredInEightBits) {
  write({{"q.weight", q8_}, {"q.weight_scale", at::full({}, 0.25)}, {"k.weight", k_}});
  EXPECT_TRUE(rounds_again(kFp8));
  const Activation expected = quantize_rows(at::cat({q8_.to(at::kFloat) * 0.25, k_}));
  EXPECT_TRUE(load(kFp8).weight.view(at::kByte).equal(expected.values.view(at::kByte)));
}

/// Products in fp8 cannot take these formats. Such weights are expanded for each product, even if the run requests fp8
/// weights.
TEST_F(Fp8Weights, KeepOtherEightBitFormats) {
  const at::Tensor scale = at::rand({16}) + 0.1;
  const std::pair<at::Tensor, at::Tensor> pairs[] = {
      {q_.to(at::kFloat8_e5m2), k_.to(at::kFloat8_e5m2)},
      {at::randint(-127, 128, {16, 32}, at::kChar), at::randint(-127, 128, {16, 32}, at::kChar)}};
  for (const auto& [q, k] : pairs) {
    write({{"q.weight", q}, {"q.weight_scale", scale}, {"k.weight", k}, {"k.weight_scale", scale.view({16, 1})}});
    const at::Tensor scales = scale.unsqueeze(1);
    const at::Tensor expected = at::cat({q.to(at::kFloat) * scales, k.to(at::kFloat) * scales});
    for (const WeightFormat& format : {kFp8, WeightFormat(at::kBFloat16)}) {
      const Linear layer = load(format);
      EXPECT_FALSE(layer.is_fp8());
      EXPECT_EQ(layer.weight.nbytes(), 32U * 32);
      EXPECT_TRUE(layer.in(at::kBFloat16).weight.equal(expected.to(at::kBFloat16)));
      EXPECT_EQ(load(format, at::kMeta).weight.nbytes(), 32U * 32);
    }
  }
}

TEST_F(Fp8Weights, RefuseOtherLayoutsByName) {
  write({{"q.weight", q8_.view(at::kByte)}, {"k.weight", k_}});
  EXPECT_NE(complaint().find("\"q.weight\" is stored as U8"), std::string::npos) << complaint();
  write({{"q.weight", q_.to(at::kChar)}, {"k.weight", k_}});
  EXPECT_NE(complaint().find("\"q.weight\" is stored as I8 without a scale"), std::string::npos) << complaint();
  write({{"q.weight", q8_}, {"q.scale_weight", at::ones({16, 2, 1})}, {"k.weight", k_}});
  EXPECT_NE(complaint().find("\"q.weight\" has a scale for each block of a row"), std::string::npos) << complaint();
  write({{"q.weight", q8_}, {"q.weight_scale", at::ones({2, 2})}, {"k.weight", k_}});
  EXPECT_NE(complaint().find("\"q.weight_scale\" is [2, 2], expected [16]"), std::string::npos) << complaint();
  write({{"q.weight", q8_}, {"q.weight_scale_inv", at::ones({1, 1})}, {"k.weight", k_}});
  EXPECT_NE(complaint().find("\"q\" is quantized as 8 bits with \"weight_scale_inv\""), std::string::npos)
      << complaint();
}

TEST_F(Fp8Weights, TakeNoMemoryIfMissing) {
  write({{"q.weight", q_}});
  WeightReader reader(component_, at::kCPU, kFp8);
  Linear layer;
  layer.packed_weights(in_fp8(reader.loads()), {"q", "k"}, 16, 32, /*has_bias=*/false);
  EXPECT_TRUE(is_stand_in(layer.weight));
  EXPECT_TRUE(layer.is_fp8());
  EXPECT_THROW(reader.check_complete(), Error);
}

TEST_F(Fp8Weights, AreCountedAndReleasedWithTheirScales) {
  component_.random_seed = 1;
  std::vector<Linear> layers(2);
  std::vector<Slots> slots;
  for (size_t i = 0; i < layers.size(); ++i)
    slots.push_back(
        slots_of([&](const Visit& visit) { layers[i].weights(in_fp8(visit), "layer." + std::to_string(i), 32, 48); }));
  EXPECT_EQ(bytes_of(slots[0], WeightReader(component_, at::kMeta, kFp8)), 32U * 48 + 4U * 32 + 2U * 32);
  EXPECT_EQ(bytes_of(slots[0], WeightReader(component_, at::kMeta, at::kBFloat16)), 2U * (32 * 48 + 32));
  const auto weights = load_layers(std::make_shared<WeightReader>(component_, at::kCPU, kFp8), slots, Residence::file);
  weights->visit(0);
  EXPECT_TRUE(layers[0].is_fp8());
  weights->visit(1);
  EXPECT_FALSE(layers[0].is_fp8());
  EXPECT_TRUE(layers[1].is_fp8());
}

}  // namespace
}  // namespace sparsereel::models
