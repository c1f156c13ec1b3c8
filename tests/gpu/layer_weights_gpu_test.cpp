// Tests layers whose weights wait in host memory and are copied to the GPU when they are needed. Skipped without a GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/linear.h"
#include "models/store/checkpoint/family.h"
#include "models/store/weights/device.h"
#include "models/store/weights/layer_weights.h"
#include "tests/support/packed_layers.h"

namespace sparsereel::models {
namespace {

class HostLayersOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    component_.random_seed = 1;
    // The sizes of consecutive layers rise and fall. The largest layer takes more than one page-locked chunk.
    for (const int64_t out : {3, 4000, 64, 5000, 1}) {
      const std::string name = "layer." + std::to_string(names_.size());
      names_.push_back(name);
      outs_.push_back(out);
    }
    layers_.resize(names_.size());
    for (size_t i = 0; i < layers_.size(); ++i) {
      slots_.push_back(slots_of([&](const Visit& visit) {
        layers_[i].weights(visit, names_[i], outs_[i], kInputs, /*has_bias=*/i != 2);
        if (i == 3) visit(wide_, parameter("wide.bias", {77}, /*fp32=*/true));
      }));
    }
  }

  static constexpr int64_t kInputs = 4096;

  c10::InferenceMode inference_;
  Component component_;
  std::vector<std::string> names_;
  std::vector<int64_t> outs_;
  std::vector<Linear> layers_;
  at::Tensor wide_;  // the fp32 bias that belongs to layer 3
  std::vector<Slots> slots_;
};

TEST_F(HostLayersOnGpu, AreCompleteInEachVisitForAllShapes) {
  const auto reader = std::make_shared<WeightReader>(component_, at::Device(at::kCUDA, 0), at::kBFloat16);
  const auto weights = load_layers(reader, slots_, Residence::host);
  for (const Linear& layer : layers_) EXPECT_FALSE(layer.weight.defined());
  // The layers are visited in turn several times; once a layer is repeated, and once one is skipped.
  for (const size_t i : {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 4, 0, 1, 3, 2}) {
    weights->visit(i);
    EXPECT_TRUE(layers_[i].weight.equal(reader->tensor(names_[i] + ".weight", {outs_[i], kInputs}))) << i;
    EXPECT_EQ(layers_[i].bias.defined(), i != 2);
    if (i != 2) {
      EXPECT_TRUE(layers_[i].bias.equal(reader->tensor(names_[i] + ".bias", {outs_[i]}))) << i;
    }
    if (i == 3) {
      EXPECT_EQ(wide_.scalar_type(), at::kFloat);
      EXPECT_TRUE(wide_.equal(reader->read(parameter("wide.bias", {77}, /*fp32=*/true))));
    }
  }
}

TEST_F(HostLayersOnGpu, AreCompleteWhereverTheyWait) {
  const std::array ways = {Streaming{.layers = 2}, Streaming{.layers = 5, .pageable = 5},
                           Streaming{.layers = 4, .pageable = 1, .from_file = 2},
                           Streaming{.layers = 3, .from_file = 3}, Streaming{.layers = 1}};
  for (const Streaming& way : ways) {
    const auto reader = std::make_shared<WeightReader>(component_, at::Device(at::kCUDA, 0), at::kBFloat16);
    const auto weights = load_layers(reader, slots_, way);
    const auto stay = std::ranges::count_if(layers_, [](const Linear& layer) { return layer.weight.defined(); });
    EXPECT_EQ(stay, 5 - way.layers);
    for (const size_t i : {0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 4, 4, 0, 1, 3, 2}) {
      weights->visit(i);
      EXPECT_TRUE(layers_[i].weight.equal(reader->tensor(names_[i] + ".weight", {outs_[i], kInputs})))
          << i << " of " << way.layers << " " << way.pageable << " " << way.from_file;
    }
  }
}

/// The layers are larger than all page-locked chunks together, and a long product runs while the next one is read.
TEST_F(HostLayersOnGpu, AreReadFromTheirFileWhileTheGpuIsBusy) {
  const at::Device gpu(at::kCUDA, 0);
  const test::TemporaryFolder folder;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (int i = 0; i < 3; ++i)
    tensors.emplace_back("layer." + std::to_string(i) + ".weight", at::randn({20000 + i, 2048}).to(at::kBFloat16));
  test::write_tensors(folder / "a.safetensors", tensors);
  const Component component =
      component_of(open_weights(folder / "a.safetensors"), {.role = "transformer", .classes = {"Model"}});
  std::vector<Linear> layers(3);
  std::vector<Slots> slots;
  for (size_t i = 0; i < layers.size(); ++i)
    slots.push_back(slots_of([&](const Visit& visit) {
      layers[i].weights(visit, "layer." + std::to_string(i), tensors[i].second.size(0), 2048, /*has_bias=*/false);
    }));
  const auto weights =
      load_layers(std::make_shared<WeightReader>(component, gpu, at::kBFloat16), slots, Residence::file);
  const at::Tensor x = at::randn({20000, 2048}, at::TensorOptions().dtype(at::kBFloat16).device(gpu));
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < layers.size(); ++i) {
    weights->visit(i);
    for (int k = 0; k < 5; ++k) at::matmul(x, layers[i].weight.t());
    sums.push_back(layers[i].weight.to(at::kDouble).sum());
  }
  for (size_t i = 0; i < layers.size(); ++i)
    EXPECT_NEAR(sums[i].item<double>(), tensors[i].second.to(at::kDouble).sum().item<double>(), 1e-6) << i;
  weights->visit(1);
  EXPECT_TRUE(layers[1].weight.cpu().equal(tensors[1].second));
  const std::filesystem::path path = folder / "a.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_TRUE(test::throws_error([&] { weights->visit(2); }, {"a.safetensors", "became shorter"}));
}

/// The references are bf16 weights to which the LoRAs were added when they were read. Packed layers with LoRAs may
/// differ from them only in the last bit, where an fp32 sum lies between two bf16 values. A GPU splits each factor of
/// an fp32 LoRA into two bf16 parts, which loses 2^-16 of every addend. If addends cancel out, that is more than the
/// last bit.
TEST_F(HostLayersOnGpu, IncludeTheirLorasIfPacked) {
  const at::Device gpu(at::kCUDA, 0);
  const test::PackedLayers files({128, 5000, 64}, 4096);  // the second is unpacked in several pieces
  Component without_loras = files.plain;
  without_loras.deltas.clear();
  std::vector<Linear> plain, bare, resident, waiting;
  const auto reader = std::make_shared<WeightReader>(files.packed, gpu, at::kBFloat16);
  load_layers(std::make_shared<WeightReader>(files.plain, gpu, at::kBFloat16), files.list(plain), Residence::device);
  load_layers(std::make_shared<WeightReader>(without_loras, gpu, at::kBFloat16), files.list(bare), Residence::device);
  load_layers(reader, files.list(resident), Residence::device);
  const auto weights = load_layers(reader, files.list(waiting), Residence::host);
  for (const size_t i : {0, 1, 2, 0, 1}) {
    weights->visit(i);
    const at::Tensor expected = plain[i].weight.to(at::kFloat), found = resident[i].in(at::kBFloat16).weight;
    EXPECT_EQ(resident[i].weight.scalar_type(), at::kByte);
    EXPECT_TRUE(waiting[i].in(at::kBFloat16).weight.equal(found)) << i;
    const at::Tensor error = (found.to(at::kFloat) - expected).abs();
    const at::Tensor largest_addend = (expected - bare[i].weight.to(at::kFloat)).abs().max();
    EXPECT_TRUE((error <= expected.abs() / 128 + largest_addend / 16384).all().item<bool>()) << i;
    const double changed = error.gt(0).to(at::kFloat).mean().item<double>();
    RecordProperty("changed_" + std::to_string(i), std::to_string(changed));
    EXPECT_LT(changed, 0.02) << i;
  }
}

TEST_F(HostLayersOnGpu, RestoreTheOrderOfHalvesThatAFileHasSwapped) {
  test::PackedLayers files({128, 64}, 4096);
  for (Component* component : {&files.packed, &files.plain}) {
    component->deltas.clear();
    for (auto& [name, place] : component->tensors) {
      auto entry = std::make_shared<TensorEntry>(*place.second);
      entry->halves_swapped = true;
      place.second = component->parts.emplace_back(std::move(entry)).get();
    }
    const auto load = [&](at::Device device, std::vector<Linear>& layers) {
      load_layers(std::make_shared<WeightReader>(*component, device, at::kBFloat16), files.list(layers),
                  Residence::device);
    };
    std::vector<Linear> there, here;
    load(at::Device(at::kCUDA, 0), there);
    load(at::kCPU, here);
    for (const size_t i : {0, 1})
      EXPECT_TRUE(there[i].in(at::kFloat).weight.cpu().equal(here[i].in(at::kFloat).weight)) << i;
  }
}

}  // namespace
}  // namespace sparsereel::models
