// Tests VAEs on a GPU against frames and latents from diffusers, and their layers against the CPU's. Skipped without a
// GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "models/store/weights/device.h"
#include "models/vae/causal_conv3d.h"
#include "models/vae/group_norm.h"
#include "models/vae/rms_norm.h"
#include "models/vae/spatial_norm.h"
#include "models/vae/vae.h"
#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;

constexpr auto kDtypes = {at::kFloat, at::kBFloat16, at::kHalf};

double vae_tolerance_of(at::ScalarType dtype) {
  return dtype == at::kFloat ? 1e-5 : dtype == at::kHalf ? 2e-3 : 1.2e-2;
}

class VaeOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    at::manual_seed(3);
    at::globalContext().setAllowTF32CuDNN(true);  // libtorch's default, which must not make fp32 models use TF32
  }

  static at::Tensor rounded(at::IntArrayRef sizes, at::ScalarType dtype, double offset = 0) {
    return (at::randn(sizes) + offset).to(dtype).to(at::kFloat);
  }

  static SpatialNorm moved(SpatialNorm norm, at::ScalarType dtype) {
    for (at::Tensor* part : {&norm.norm.weight, &norm.norm.bias, &norm.conv_y.weight, &norm.conv_y.bias,
                             &norm.conv_b.weight, &norm.conv_b.bias})
      *part = part->to(at::kCUDA, dtype);
    return norm;
  }

  c10::InferenceMode inference_;
};

struct SpatialNormCase {
  int64_t channels, groups, frames, latent_frames, repeat;
  double offset;
};

TEST_F(VaeOnGpu, UsesTf32OnlyInTheThreadThatAllowsIt) {
  const at::Tensor x = at::randn({1, 32, 4, 24, 24}), weight = at::randn({48, 32, 3, 3, 3}), bias = at::randn({48});
  const auto convolved = [&] {
    const c10::InferenceMode inference;
    return convolve(x.to(at::kCUDA), weight.to(at::kCUDA), bias.to(at::kCUDA), {1, 1, 1}).to(at::kCPU);
  };
  const at::Tensor exact = convolved();
  EXPECT_TRUE(close_to(exact, convolve(x, weight, bias, {1, 1, 1}), 1e-5));
  {
    const Tf32Convolutions allowed(true);
    EXPECT_FALSE(close_to(convolved(), exact, 1e-5));
    at::Tensor beside;
    std::thread([&] { beside = convolved(); }).join();
    EXPECT_TRUE(beside.equal(exact));
  }
  EXPECT_TRUE(convolved().equal(exact));
}

TEST_F(VaeOnGpu, MatchesTheCpuForSpatialNorm) {
  for (const SpatialNormCase& c :
       {SpatialNormCase{16, 4, 5, 3, 1, 0}, SpatialNormCase{128, 32, 9, 3, 8, 0}, SpatialNormCase{256, 32, 8, 2, 4, 0},
        SpatialNormCase{512, 32, 1, 1, 2, 0}, SpatialNormCase{24, 3, 2, 2, 2, 0}, SpatialNormCase{12, 3, 5, 3, 2, 0},
        SpatialNormCase{2048, 32, 2, 2, 1, 0}, SpatialNormCase{320, 32, 4, 2, 2, 30},
        SpatialNormCase{8, 1, 8, 2, 8, 0}}) {
    for (const auto dtype : kDtypes) {
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(testing::Message() << c.channels << " channels, " << c.frames << " frames, " << dtype << biased);
        const SpatialNorm norm{.norm = {rounded({c.channels}, dtype), rounded({c.channels}, dtype)},
                               .conv_y = {rounded({c.channels, 4}, dtype), rounded({c.channels}, dtype)},
                               .conv_b = {rounded({c.channels, 4}, dtype), rounded({c.channels}, dtype)},
                               .groups = c.groups};
        const at::Tensor z = rounded({c.latent_frames, 3, 5, 4}, dtype);
        const at::Tensor x = rounded({c.frames, 3 * c.repeat, 5 * c.repeat, c.channels}, dtype, c.offset);
        const at::Tensor bias = biased ? rounded({c.channels}, dtype) : at::Tensor();
        const at::Tensor expected = at::empty_like(x);
        spatial_norm_silu(norm, x, z, expected, bias);
        const at::Tensor out = at::empty(x.sizes(), at::TensorOptions().device(at::kCUDA).dtype(dtype));
        spatial_norm_silu(moved(norm, dtype), x.to(at::kCUDA, dtype), z.to(at::kCUDA, dtype), out,
                          biased ? bias.to(at::kCUDA, dtype) : bias);
        // Twice the tolerance of the other norms: conv_y's rounding error, multiplied by normalized values, is added.
        EXPECT_TRUE(close_to(out, expected, 2 * vae_tolerance_of(dtype)));
      }
    }
  }
}

TEST_F(VaeOnGpu, KeepsSpatialNormFiniteForHugeValuesAndPropagatesNan) {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const SpatialNorm norm{.norm = {.weight = at::ones({16}, options), .bias = at::zeros({16}, options)},
                         .conv_y = {.weight = at::zeros({16, 1}, options), .bias = at::full({16}, 1e4, options)},
                         .conv_b = {.weight = at::zeros({16, 1}, options), .bias = at::zeros({16}, options)},
                         .groups = 2};
  const at::Tensor x = at::randn({2, 4, 4, 16}, options), out = at::empty_like(x), z = at::zeros({2, 4, 4, 1}, options);
  spatial_norm_silu(norm, x, z, out);
  EXPECT_TRUE(at::isfinite(out).all().item<bool>());
  EXPECT_GT(out.max().item<double>(), 1e3);
  x[1][2][3][0] = std::numeric_limits<float>::quiet_NaN();
  spatial_norm_silu(norm, x, z, out);
  EXPECT_TRUE(at::isnan(out.narrow(3, 0, 8)).all().item<bool>());
  EXPECT_FALSE(at::isnan(out.narrow(3, 8, 8)).any().item<bool>());
}

TEST_F(VaeOnGpu, MatchesTheCpuForGroupNormInsideABorder) {
  for (const auto& [channels, groups] : {std::pair{8, 2}, std::pair{96, 32}, std::pair{768, 32}, std::pair{12, 3}}) {
    for (const auto dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << channels << " channels, " << dtype);
      GroupNorm norm = {.norm = {rounded({channels}, dtype), rounded({channels}, dtype)}, .groups = groups};
      const at::Tensor x = rounded({3, 5, 7, channels}, dtype, 3), bias = rounded({channels}, dtype);
      const at::Tensor expected = at::empty_like(x);
      group_norm_silu(norm, x, expected, bias);
      const auto options = at::TensorOptions().device(at::kCUDA).dtype(dtype);
      const at::Tensor buffer = at::full({3, 7, 9, channels}, -7, options);
      const at::Tensor out = buffer.narrow(1, 1, 5).narrow(2, 1, 7);
      norm.norm = {norm.norm.weight.to(at::kCUDA, dtype), norm.norm.bias.to(at::kCUDA, dtype)};
      group_norm_silu(norm, x.to(at::kCUDA, dtype), out, bias.to(at::kCUDA, dtype));
      EXPECT_TRUE(close_to(out, expected, vae_tolerance_of(dtype)));
      EXPECT_EQ(buffer.eq(-7).sum().item<int64_t>(), 3 * (7 * 9 - 5 * 7) * channels) << "the border changed";
    }
  }
}

TEST_F(VaeOnGpu, MatchesTheCpuForRmsNorm) {
  for (const int64_t channels : {8, 16, 40, 96, 192, 384, 512, 1024, 1032, 2048}) {
    for (const auto dtype : kDtypes) {
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(testing::Message() << channels << " channels, " << dtype << biased);
        at::Tensor x = rounded({3, 7, 9, channels}, dtype);
        x[1][2][3].zero_();
        x[2][6][8].mul_(100);
        const at::Tensor gamma = rounded({channels}, dtype), expected = at::empty_like(x);
        const at::Tensor bias = biased ? rounded({channels}, dtype) : at::Tensor();
        rms_norm_silu(x, gamma, expected, bias);
        const at::Tensor out = at::empty(x.sizes(), at::TensorOptions().device(at::kCUDA).dtype(dtype));
        rms_norm_silu(x.to(at::kCUDA, dtype), gamma.to(at::kCUDA, dtype), out,
                      biased ? bias.to(at::kCUDA, dtype) : bias);
        EXPECT_TRUE(close_to(out, expected, vae_tolerance_of(dtype)));
      }
    }
  }
}

TEST_F(VaeOnGpu, PropagatesNanThroughRmsNorm) {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({1, 3, 5, 96}, options), out = at::empty_like(x);
  x[0][1][2][95] = std::numeric_limits<float>::quiet_NaN();
  rms_norm_silu(x, at::ones({96}, options), out);
  EXPECT_TRUE(at::isnan(out[0][1][2]).all().item<bool>());
  EXPECT_EQ(at::isnan(out).sum().item<int64_t>(), 96);
}

#ifdef SPARSEREEL_CUDA
TEST_F(VaeOnGpu, AddsResidualsWithTheirBias) {
  for (const auto dtype : kDtypes) {
    const at::Tensor x = rounded({2, 5, 7, 24}, dtype), y = rounded(x.sizes(), dtype), bias = rounded({24}, dtype);
    const at::Tensor plain = x.to(at::kCUDA, dtype), biased = plain.clone(), residual = y.to(at::kCUDA, dtype);
    add_residual_on_cuda(plain, residual, {});
    add_residual_on_cuda(biased, residual, bias.to(at::kCUDA, dtype));
    EXPECT_TRUE(close_to(plain, x + y, vae_tolerance_of(dtype)));
    EXPECT_TRUE(close_to(biased, x + y + bias, vae_tolerance_of(dtype)));
  }
}

TEST_F(VaeOnGpu, RepeatsPixelsAndFrames) {
  for (const int64_t frames : {1, 2, 3, 4, 5}) {
    const at::Tensor x = rounded({frames, 3, 5, 16}, at::kHalf), bias = rounded({16}, at::kHalf);
    const at::Tensor gpu = x.to(at::kCUDA, at::kHalf);
    EXPECT_TRUE(at::equal(repeat_on_cuda(gpu, {}, 2, false).cpu().to(at::kFloat),
                          x.repeat_interleave(2, 1).repeat_interleave(2, 2)));
    const at::Tensor twice = frames % 2 == 0
                                 ? x.repeat_interleave(2, 0)
                                 : at::cat({x.narrow(0, 0, 1), x.narrow(0, 1, frames - 1).repeat_interleave(2, 0)});
    EXPECT_TRUE(at::equal(repeat_on_cuda(gpu, {}, 1, true).cpu().to(at::kFloat), twice));
    EXPECT_TRUE(close_to(repeat_on_cuda(gpu, bias.to(at::kCUDA, at::kHalf), 1, true), twice + bias, 2e-3));
  }
}
#endif

TEST_F(VaeOnGpu, PadsOutputChannelsToEight) {
  const CausalConv3d conv{.weight = at::randn({3, 16, 3, 3, 3}).to(at::kCUDA, at::kHalf),
                          .bias = at::randn({3}).to(at::kCUDA, at::kHalf)};
  const CausalConv3d padded = with_padded_outputs(conv);
  EXPECT_EQ(padded.weight.sizes(), at::IntArrayRef({8, 16, 3, 3, 3}));
  const at::Tensor buffer = at::randn({4, 6, 5, 16}).to(at::kCUDA, at::kHalf);
  ConvHistory first, second;
  const at::Tensor expected = causal_conv3d(conv, buffer, first), actual = causal_conv3d(padded, buffer, second);
  EXPECT_TRUE(close_to(actual.narrow(3, 0, 3), expected, 2e-3));
}

class VaeModelOnGpu : public VaeOnGpu {
 protected:
  /// Returns every third row and column of the decoded frames, because the golden files hold only these.
  static at::Tensor decode(const test::ParityCase& one, at::Device device, at::ScalarType dtype) {
    const auto vae = load_vae(test::vae_component(*one.family, one.content["vae"]), device, dtype);
    return vae->decode(tensor(one, "latents").to(device, dtype), one.content["tiled"])
        .to(at::kCPU, at::kFloat)
        .slice(3, 0, c10::nullopt, 3)
        .slice(4, 0, c10::nullopt, 3);
  }
  static at::Tensor tensor(const test::ParityCase& one, const std::string& key) {
    return test::Golden(one.family->folder + "vae_golden")[one.name + "." + key];
  }

  const std::vector<test::ParityCase> cases_ = test::parity_cases("vae_cases.json");
};

TEST_F(VaeModelOnGpu, MatchesTheFramesOfDiffusersInFp32) {
  for (const test::ParityCase& one : cases_)
    EXPECT_TRUE(close_to(decode(one, at::kCUDA, at::kFloat), tensor(one, "frames"), 1e-4)) << one.name;
}

TEST_F(VaeModelOnGpu, MatchesTheLatentsOfDiffusers) {
  for (const test::ParityCase& one : test::parity_cases("vae_encoder_cases.json")) {
    const test::Golden golden(one.family->folder + "vae_encoder_golden");
    const at::Tensor frames = test::frames_to_encode(one.content["frames"].get<std::vector<int64_t>>());
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(testing::Message() << one.name << " " << dtype);
      const auto vae =
          load_vae(test::vae_component(*one.family, one.content["vae"]), at::kCUDA, dtype, VaeParts::encoder);
      const LatentDistribution latents = vae->encode(frames.to(at::kCUDA, dtype), one.content["tiled"]);
      const double tolerance = dtype == at::kFloat ? 1e-4 : dtype == at::kHalf ? 0.01 : 0.08;
      EXPECT_TRUE(close_to(latents.mean, golden[one.name + ".mean"], tolerance));
      if (latents.deviation.defined()) {
        EXPECT_TRUE(close_to(latents.deviation, golden[one.name + ".deviation"], tolerance));
      }
    }
  }
}

TEST_F(VaeOnGpu, MatchesTheCpuForVideoNorm) {
  for (const auto& [channels, groups] : {std::pair{8, 2}, std::pair{128, 32}, std::pair{512, 32}, std::pair{12, 3}}) {
    for (const auto dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << channels << " channels, " << dtype);
      GroupNorm norm = {.norm = {rounded({channels}, dtype), rounded({channels}, dtype)}, .groups = groups};
      const at::Tensor x = rounded({3, 5, 7, channels}, dtype, 3), bias = rounded({channels}, dtype);
      x[1].add_(2);
      const at::Tensor expected = at::empty_like(x);
      video_norm_silu(norm, x, expected, bias);
      const at::Tensor out = at::empty(x.sizes(), at::TensorOptions().device(at::kCUDA).dtype(dtype));
      norm.norm = {norm.norm.weight.to(at::kCUDA, dtype), norm.norm.bias.to(at::kCUDA, dtype)};
      video_norm_silu(norm, x.to(at::kCUDA, dtype), out, bias.to(at::kCUDA, dtype));
      EXPECT_TRUE(close_to(out, expected, vae_tolerance_of(dtype)));
    }
  }
}

/// Compares errors with those of bfloat16 on a CPU. The bound is on the geometric mean of the error ratios of all
/// decodes: some latents amplify any rounding threefold, and would outweigh the others in a sum.
TEST_F(VaeModelOnGpu, ErrsAsMuchInHalfPrecisionAsTheCpuInBfloat16) {
  const auto mean_ratio = [&](at::ScalarType dtype) {
    double sum = 0;
    for (const test::ParityCase& one : cases_) {
      const at::Tensor exact = tensor(one, "frames");
      const auto error = [&](at::Device device, at::ScalarType type) {
        return (decode(one, device, type) - exact).square().mean().sqrt().item<double>();
      };
      const double ratio = error(at::kCUDA, dtype) / error(at::kCPU, at::kBFloat16);
      EXPECT_LT(ratio, 2) << one.name;
      sum += std::log(ratio);
    }
    return std::exp(sum / static_cast<double>(cases_.size()));
  };
  EXPECT_LT(mean_ratio(at::kBFloat16), 1.15);
  EXPECT_LT(mean_ratio(at::kHalf), 1.15 / 6);  // fp16 has three more bits, which would divide the error by 8
}

}  // namespace
}  // namespace sparsereel::models
