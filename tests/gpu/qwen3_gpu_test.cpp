// Compares Qwen3's language model on a GPU with transformers' results and with the CPU. Skipped without a GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <string>

#include "models/store/weights/device.h"
#include "models/text/encoder/qwen3_encoder.h"
#include "tests/support/golden.h"
#include "tests/support/qwen3_component.h"

namespace sparsereel::models {
namespace {

using test::close_to;

class Qwen3OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
  }

  static at::Tensor hidden(const Component& component, at::Device device, WeightFormat format, Residence residence,
                           const at::Tensor& ids) {
    return Qwen3Encoder::load(component, device, format, residence, 3).forward(ids);
  }

  c10::InferenceMode inference_;
  const at::Device gpu_ = at::Device(at::kCUDA, 0);
};

TEST_F(Qwen3OnGpu, MatchesTransformersWhereverTheLayersAre) {
  const test::Golden golden("qwen3_golden");
  const Component component = test::small_qwen3();
  for (const Residence residence : {Residence::device, Residence::host, Residence::file}) {
    EXPECT_TRUE(close_to(hidden(component, gpu_, at::kFloat, residence, golden["ids"]), golden["fp32.hidden"], 1e-5));
    EXPECT_TRUE(
        close_to(hidden(component, gpu_, at::kBFloat16, residence, golden["ids"]), golden["bf16.hidden"], 1.5e-2));
  }
}

/// Moves an encoder's weights from the CPU. Random weights cannot be made again on the GPU, because they differ between
/// devices.
void move_to(Qwen3Encoder& encoder, at::Device device, at::ScalarType dtype) {
  const Visit move = [&](at::Tensor& tensor, const Parameter&) { tensor = tensor.to(device, dtype); };
  for (Qwen3Layer& layer : encoder.layers) layer.weights(move, "", encoder.config);
  encoder.device = device;
  encoder.dtype = dtype;
}

/// Qwen3-VL 32B has heads of 128 channels, and eight heads of queries for each head of keys. Such calls use other
/// attention kernels than the small model.
TEST_F(Qwen3OnGpu, MatchesTheCpuWithHeadsOfTheSizeOfPublishedModels) {
  Component component;
  component.random_seed = 5;
  component.config = {{"vocab_size", 1000},     {"hidden_size", 640},        {"intermediate_size", 1280},
                      {"num_hidden_layers", 3}, {"num_attention_heads", 16}, {"num_key_value_heads", 2},
                      {"head_dim", 128},        {"rope_theta", 5e6}};
  const at::Tensor ids = at::randint(0, 1000, {1, 700}, at::kLong);
  Qwen3Encoder encoder = Qwen3Encoder::load(component, at::kCPU, at::kFloat, Residence::device, 3);
  const at::Tensor exact = encoder.forward(ids);
  move_to(encoder, gpu_, at::kFloat);
  EXPECT_TRUE(close_to(encoder.forward(ids), exact, 2e-5));
  move_to(encoder, gpu_, at::kBFloat16);
  EXPECT_TRUE(close_to(encoder.forward(ids), exact, 3e-2));
}

}  // namespace
}  // namespace sparsereel::models
