// Tests int8 rows and their products on a GPU: integers and scales must equal the CPU's. Skipped without a GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/cuda_binding.h"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda_call.h"
#include "models/layers/int8.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/residual.h"
#include "models/store/weights/device.h"

#ifdef SPARSEREEL_CUDA

namespace sparsereel::models {
namespace {

class Int8OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    at::manual_seed(3);
  }

  static void expect_same_rows(const Activation& gpu, const Int8Rows& cpu) {
    EXPECT_TRUE(gpu.scale.view({-1}).cpu().equal(cpu.scale));
    EXPECT_TRUE(gpu.values.view(cpu.values.sizes()).cpu().equal(cpu.values));
  }

  static Linear on(at::Device device, Linear layer) {
    for (at::Tensor* x : {&layer.weight, &layer.bias, &layer.scale})
      if (x->defined()) *x = x->to(device);
    for (StoredRows& part : layer.rows) {
      if (part.column_scale.defined()) part.column_scale = part.column_scale.to(device);
      for (LowRank& delta : part.deltas) delta.up = delta.up.to(device), delta.down = delta.down.to(device);
    }
    return layer;
  }

  /// Returns a layer on the CPU, quantized from random numbers. With a rotation of -1, quantize_int8_weight() chooses
  /// the rotation.
  static Linear layer(int64_t out, int64_t in, int64_t rotation = -1) {
    const at::Tensor numbers = at::randn({out, in});
    const Int8Rows rows = rotation < 0 ? quantize_int8_weight(numbers) : quantize_int8(numbers, rotation);
    Linear result = {.weight = rows.values.view(-1).view(at::kByte),
                     .bias = at::randn({out}).to(at::kBFloat16).to(at::kFloat),
                     .scale = rows.scale,
                     .rows = {{Dtype::i8, out, in, 0}}};
    result.rows[0].rotation = rows.rotation;
    result.rows[0].multiplies = true;
    return result;
  }

  static double error(const at::Tensor& found, const at::Tensor& exact) {
    return ((found.cpu().to(at::kDouble) - exact.to(at::kDouble)).norm() / exact.to(at::kDouble).norm()).item<double>();
  }

  /// Expects the GPU's product to equal the CPU's fp32 product, rounded to the dtype of x. The biases of layer() are
  /// exact in bf16 and fp16, so the GPU rounds only the result.
  static void expect_same_product(const at::Tensor& x, const Linear& layer) {
    const at::Tensor gpu = linear(x.to(at::kCUDA), on(at::kCUDA, layer)).cpu();
    EXPECT_TRUE(gpu.equal(linear(x.to(at::kFloat), layer).to(x.scalar_type())));
  }

  c10::InferenceMode inference_;
};

TEST_F(Int8OnGpu, QuantizesRowsToTheSameBitsAsTheCpu) {
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const int64_t rows : {1, 7, 333}) {
      for (const int64_t channels : {16, 48, 256, 1920, 2064, 3072, 5120, 8960, 13824, 16384}) {
        at::Tensor x = at::randn({rows, channels}) * at::linspace(-12, 9, rows).exp2().unsqueeze(1);
        x[rows / 2].zero_();
        x[rows - 1][channels - 1] = 300;
        x = x.to(dtype);
        for (const int64_t rotation : {0, 16, 64, 256}) {
          if (rotation > 0 && channels % rotation != 0) continue;
          SCOPED_TRACE(testing::Message() << rows << " x " << channels << " " << dtype << " rotated " << rotation);
          const RowFormat format = {.kind = RowFormat::int8, .rotation = rotation};
          expect_same_rows(quantize_on_cuda(x.to(at::kCUDA), format), quantize_int8(x, rotation));
        }
      }
    }
  }
}

TEST_F(Int8OnGpu, QuantizesWeightsAsTheCpuDoes) {
  const at::Tensor weight = at::randn({96, 512});
  const Int8Rows gpu = quantize_int8_weight(weight.to(at::kCUDA)), cpu = quantize_int8_weight(weight);
  EXPECT_EQ(gpu.rotation, cpu.rotation);
  EXPECT_TRUE(gpu.values.cpu().equal(cpu.values));
  EXPECT_TRUE(gpu.scale.cpu().equal(cpu.scale));
}

TEST_F(Int8OnGpu, MultipliesExactlyAtAnySize) {
  for (const auto& [rows, out, in] :
       {std::tuple(1, 16, 16), {3, 48, 80}, {129, 272, 144}, {300, 1008, 400}, {1000, 768, 1040}, {513, 1536, 1536}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << out << " x " << in);
    for (const auto dtype : {at::kBFloat16, at::kHalf})
      expect_same_product(at::randn({rows, in}).to(dtype), layer(out, in));
  }
}

/// The kernel for older GPUs runs on every GPU. It must give the same bits as the kernel that linear() chooses.
TEST_F(Int8OnGpu, GivesTheSameBitsWithTheKernelForOlderGpus) {
  for (const auto& [rows, out, in] : {std::tuple(1, 16, 16), {129, 272, 144}, {700, 1008, 2064}}) {
    const Linear weights = on(at::kCUDA, layer(out, in, 0));
    const Activation x =
        quantize_on_cuda(at::randn({rows, in}, at::kBFloat16).to(at::kCUDA), {.kind = RowFormat::int8});
    const at::Tensor found = at::empty({rows, out}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16)),
                     bias = weights.bias.to(at::kBFloat16);
    const cuda::MultiplyRows call = {.rows = rows,
                                     .outputs = out,
                                     .depth = in,
                                     .x = x.values.const_data_ptr<int8_t>(),
                                     .x_scale = x.scale.const_data_ptr<float>(),
                                     .weight = reinterpret_cast<const int8_t*>(weights.weight.const_data_ptr()),
                                     .weight_scale = weights.scale.const_data_ptr<float>(),
                                     .bias = bias.const_data_ptr(),
                                     .out = found.mutable_data_ptr(),
                                     .out_stride = out,
                                     .by_mma = true};
    EXPECT_EQ(cuda::multiply_rows(call, attention::current_stream(x.values.device())), nullptr);
    EXPECT_TRUE(found.equal(linear(x, weights)));
  }
}

TEST_F(Int8OnGpu, GivesEveryPartOfALayerItsOwnRotationColumnsAndLora) {
  const Linear first = layer(48, 1024, 64), second = layer(32, 1024, 1024), third = layer(16, 1024, 4);
  Linear all = first;
  all.weight = at::cat({first.weight, second.weight, third.weight});
  all.scale = at::cat({first.scale, second.scale, third.scale});
  all.bias = at::cat({first.bias, second.bias, third.bias});
  StoredRows more = second.rows[0];
  more.offset = 48 * 1024;
  more.column_scale = at::rand({1024}) + 0.5;
  more.deltas = {{at::randn({32, 4}), at::randn({4, 1024}), 0.1}};
  all.rows.push_back(more);
  more = third.rows[0];
  more.offset = 80 * 1024;
  all.rows.push_back(more);
  const at::Tensor x = at::randn({2, 37, 1024}).to(at::kBFloat16), gpu = linear(x.to(at::kCUDA), on(at::kCUDA, all));
  EXPECT_EQ(gpu.sizes(), at::IntArrayRef({2, 37, 96}));
  EXPECT_LT(error(gpu, linear(x.to(at::kFloat), all)), 0.004);
  EXPECT_LT(error(gpu, at::linear(x.to(at::kFloat), all.in(at::kFloat).weight, all.bias)), 0.03);
}

TEST_F(Int8OnGpu, TakesRowsFromNormAndGeluThatAreInt8Already) {
  for (const int64_t channels : {256, 1920, 3072, 5120}) {
    SCOPED_TRACE(channels);
    const Linear in = layer(512, channels), out = layer(channels, 512);
    const at::Tensor x = at::randn({1, 300, channels}).to(at::kBFloat16), update = at::randn_like(x);
    const at::Tensor vectors = at::randn({3, 1, channels});
    const JointModulation modulation = {.video = {.shift = vectors[0], .scale = vectors[1], .gate = vectors[2]},
                                        .text = {}};
    const JointModulation on_gpu = {
        .video = {.shift = vectors[0].cuda(), .scale = vectors[1].cuda(), .gate = vectors[2].cuda()}, .text = {}};
    Residual residual(x.to(at::kCUDA), 300);
    residual.add(update.to(at::kCUDA), on_gpu);
    const Linear gpu_in = on(at::kCUDA, in), gpu_out = on(at::kCUDA, out);
    const Activation rows = residual.norm_modulate({}, 1e-6, on_gpu, gpu_in);
    ASSERT_TRUE(rows.is_int8());
    EXPECT_EQ(rows.format.rotation, in.rows[0].rotation);
    // A norm that is rounded to bf16 first, and then quantized in a second pass, must give the same integers.
    at::Tensor again = x.to(at::kCUDA);
    const at::Tensor normed = add_gated_norm_modulate_(again, update.to(at::kCUDA), on_gpu, {}, 1e-6, 300, on_gpu);
    expect_same_rows(rows, quantize_int8(normed.cpu(), in.rows[0].rotation));
    EXPECT_TRUE(linear(rows, gpu_in).equal(linear(normed, gpu_in)));
    const at::Tensor exact = linear(linear_gelu_tanh(normed.cpu().to(at::kFloat), in), out);
    EXPECT_LT(error(feed_forward_gelu_tanh(rows, gpu_in, gpu_out), exact), 0.01);
  }
}

TEST_F(Int8OnGpu, KeepsNanAndInfinityInTheirRow) {
  const Linear weights = on(at::kCUDA, layer(32, 256));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    at::Tensor x = at::randn({9, 256}, at::kBFloat16);
    x[4][17] = bad;
    const at::Tensor finite = at::isfinite(linear(x.to(at::kCUDA), weights)).all(1).cpu();
    EXPECT_EQ(finite.sum().item<int64_t>(), 8);
    EXPECT_FALSE(finite[4].item<bool>());
  }
}

TEST_F(Int8OnGpu, UnpacksLayersWhoseSizesTheKernelsDoNotTake) {
  Linear odd = layer(24, 40, 4);
  odd.bias = at::Tensor();
  const at::Tensor x = at::randn({5, 40}).to(at::kBFloat16);
  EXPECT_FALSE(multiplies_in_int8(x.to(at::kCUDA), on(at::kCUDA, odd)));
  EXPECT_LT(error(linear(x.to(at::kCUDA), on(at::kCUDA, odd)), at::linear(x.to(at::kFloat), odd.in(at::kFloat).weight)),
            0.01);
}

}  // namespace
}  // namespace sparsereel::models

#endif
