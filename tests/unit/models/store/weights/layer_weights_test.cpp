// Tests weights of layers with different shapes: how they are packed and counted, and that each layer is read when the
// model reaches it.
#include "models/store/weights/layer_weights.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/layers/linear.h"
#include "tests/support/packed_layers.h"

namespace sparsereel::models {
namespace {

class LayerWeightsTest : public ::testing::Test {
 protected:
  LayerWeightsTest() {
    component_.random_seed = 1;
    layers_.resize(3);
    for (size_t i = 0; i < layers_.size(); ++i) {
      // The last layer has more outputs than the others and no bias.
      const int64_t out = i == 2 ? 7 : 3;
      slots_.push_back(slots_of(
          [&](const Visit& visit) { layers_[i].weights(visit, "layer." + std::to_string(i), out, 5, i != 2); }));
    }
  }

  c10::InferenceMode inference_;
  Component component_;
  std::vector<Linear> layers_;
  std::vector<Slots> slots_;
};

TEST_F(LayerWeightsTest, CountsTheBytesOfListedParameters) {
  const WeightReader bf16(component_, at::kMeta, at::kBFloat16), fp32(component_, at::kMeta, at::kFloat);
  EXPECT_EQ(bytes_of(slots_[0], bf16), 2U * (3 * 5 + 3));
  EXPECT_EQ(bytes_of(slots_[2], fp32), 4U * 7 * 5);
  slots_[0][1].parameter.fp32 = true;
  EXPECT_EQ(bytes_of(slots_[0], bf16), 2U * 3 * 5 + 4U * 3);
}

TEST_F(LayerWeightsTest, HoldsOneLayerAtATimeFromAFile) {
  const auto reader = std::make_shared<WeightReader>(component_, at::kCPU, at::kFloat);
  const auto weights = load_layers(reader, slots_, Residence::file);
  const at::Tensor first = reader->tensor("layer.0.weight", {3, 5});
  for (const size_t layer : {size_t{0}, size_t{1}, size_t{2}, size_t{0}, size_t{0}}) {
    weights->visit(layer);
    for (size_t i = 0; i < layers_.size(); ++i) EXPECT_EQ(layers_[i].weight.defined(), i == layer);
  }
  EXPECT_TRUE(layers_[0].weight.equal(first));
  weights->visit(2);
  EXPECT_EQ(layers_[2].weight.sizes(), at::IntArrayRef({7, 5}));
  EXPECT_FALSE(layers_[2].bias.defined());
  weights->release();
  EXPECT_FALSE(layers_[2].weight.defined());
}

TEST_F(LayerWeightsTest, ChecksLayersFromAFileAfterTheLastOne) {
  component_.random_seed.reset();
  const auto weights =
      load_layers(std::make_shared<WeightReader>(component_, at::kCPU, at::kFloat), slots_, Residence::file);
  weights->visit(0);
  weights->visit(1);
  EXPECT_THROW(weights->visit(2), Error);
}

TEST_F(LayerWeightsTest, RestoresPackedTensors) {
  at::Tensor matrix = at::randn({3, 5}), vector = at::randn({7}, at::kHalf), wide = at::randn({2, 70});
  const Packing packing({&matrix, &vector, &wide});
  const at::Tensor memory = at::zeros({packing.bytes() + 100}, at::kByte);
  for (const auto& [index, tensor] : {std::pair(0, &matrix), std::pair(1, &vector), std::pair(2, &wide)})
    packing.view(memory, static_cast<size_t>(index)).copy_(*tensor);
  EXPECT_TRUE(packing.view(memory, 0).equal(matrix));
  EXPECT_TRUE(packing.view(memory, 1).equal(vector));
  EXPECT_TRUE(packing.view(memory, 2).equal(wide));
}

/// Compares layers that stay in memory with layers that are read for each use, and with layers that are moved as one
/// piece, as from host memory to a GPU.
TEST(PackedLayers, MoveTogetherWithTheirLoras) {
  const c10::InferenceMode inference;
  const test::PackedLayers files({24, 40}, 64);
  std::vector<Linear> plain, resident, streamed;
  const auto reader = std::make_shared<WeightReader>(files.packed, at::kCPU, at::kFloat);
  load_layers(std::make_shared<WeightReader>(files.plain, at::kCPU, at::kFloat), files.list(plain), Residence::device);
  const std::vector<Slots> slots = files.list(resident);
  load_layers(reader, slots, Residence::device);
  const auto weights = load_layers(reader, files.list(streamed), Residence::file);
  const at::Tensor x = at::randn({5, 64});
  for (const size_t i : {0, 1, 0}) {
    const at::Tensor expected = linear(x, plain[i]);
    EXPECT_EQ(resident[i].weight.nbytes(), 2U * static_cast<uint64_t>(plain[i].weight.size(0)) / 2 * 64);
    EXPECT_TRUE(linear(x, resident[i]).allclose(expected, 1e-5, 1e-5)) << i;
    weights->visit(i);
    EXPECT_TRUE(linear(x, streamed[i]).equal(linear(x, resident[i]))) << i;
    EXPECT_FALSE(streamed[1 - i].weight.defined());
  }
  const at::Tensor before = linear(x, resident[0]);
  const std::vector<at::Tensor*> tensors = tensors_of(slots[0]);
  ASSERT_EQ(tensors.size(), 2U + 2 * 3);
  const Packing packing(tensors);
  const at::Tensor memory = at::zeros({packing.bytes()}, at::kByte);
  for (size_t i = 0; i < tensors.size(); ++i) {
    packing.view(memory, i).copy_(*tensors[i]);
    *tensors[i] = packing.view(memory, i);
  }
  EXPECT_TRUE(linear(x, resident[0]).equal(before));
}

TEST(PackedLayers, AreCountedWithTheirLoras) {
  const test::PackedLayers files({24, 40}, 64);
  std::vector<Linear> layers;
  const std::vector<Slots> slots = files.list(layers);
  const uint64_t packed = 2 * 24 * 64 + 4 * 2 * 24, fp32 = 4 * 4 * (24 + 64), bf16 = 2 * 8 * (24 + 64);
  EXPECT_EQ(bytes_of(slots[0], WeightReader(files.packed, at::kMeta, at::kFloat)), packed + 2 * fp32 + bf16);
  EXPECT_EQ(bytes_of(slots[0], WeightReader(files.plain, at::kMeta, at::kFloat)), 4U * 2 * 24 * 64);
}

}  // namespace
}  // namespace sparsereel::models
