// Layers of differing shapes: how they are packed, counted, and read when it is their turn.
#include "models/weights/layer_weights.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/layers/linear.h"
#include "models/weights/host_layers.h"

namespace sparsereel::models {
namespace {

class Layers : public ::testing::Test {
 protected:
  Layers() {
    component_.random_seed = 1;
    layers_.resize(3);
    for (size_t i = 0; i < layers_.size(); ++i) {
      // The last layer is wider than the others and has a tensor less.
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

TEST_F(Layers, AreCountedByWhatTheyList) {
  const WeightReader bf16(component_, at::kMeta, at::kBFloat16), fp32(component_, at::kMeta, at::kFloat);
  EXPECT_EQ(bytes_of(slots_[0], bf16), 2U * (3 * 5 + 3));
  EXPECT_EQ(bytes_of(slots_[2], fp32), 4U * 7 * 5);
  slots_[0][1].parameter.fp32 = true;
  EXPECT_EQ(bytes_of(slots_[0], bf16), 2U * 3 * 5 + 4U * 3);
}

TEST_F(Layers, FromAFileAreThereOneAtATime) {
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
}

TEST_F(Layers, FromAFileAreCheckedWhenTheLastOneIsRead) {
  component_.random_seed.reset();
  const auto weights =
      load_layers(std::make_shared<WeightReader>(component_, at::kCPU, at::kFloat), slots_, Residence::file);
  weights->visit(0);
  weights->visit(1);
  EXPECT_THROW(weights->visit(2), Error);
}

TEST_F(Layers, PackedTensorsComeBackAsTheyWere) {
  at::Tensor matrix = at::randn({3, 5}), vector = at::randn({7}, at::kHalf), wide = at::randn({2, 70});
  const Packing packing({&matrix, &vector, &wide});
  const at::Tensor memory = at::zeros({packing.bytes() + 100}, at::kByte);
  for (const auto& [index, tensor] : {std::pair(0, &matrix), std::pair(1, &vector), std::pair(2, &wide)})
    packing.view(memory, static_cast<size_t>(index)).copy_(*tensor);
  EXPECT_TRUE(packing.view(memory, 0).equal(matrix));
  EXPECT_TRUE(packing.view(memory, 1).equal(vector));
  EXPECT_TRUE(packing.view(memory, 2).equal(wide));
}

}  // namespace
}  // namespace sparsereel::models
