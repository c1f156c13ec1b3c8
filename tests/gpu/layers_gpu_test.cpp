// Tests the fused kernels of transformer blocks on a GPU against the CPU's fp32. Skipped without a GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "attention/prologue.h"
#include "models/layers/copy_call.h"
#include "models/layers/cuda_call.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/residual.h"
#include "models/layers/strided_copies.h"
#include "models/layers/unpack.h"
#include "models/store/weights/device.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;

/// Returns a tolerance for the rounding of the largest result, and of the sum that a norm reads.
double tolerance_of(at::ScalarType dtype) {
  return dtype == at::kHalf ? 2e-3 : 1.2e-2;
}

class LayersOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    at::manual_seed(3);
  }

  /// Returns normally distributed numbers that the dtype represents exactly, in fp32 on the CPU.
  static at::Tensor rounded(at::IntArrayRef sizes, at::ScalarType dtype, double offset = 0) {
    return (at::randn(sizes) + offset).to(dtype).to(at::kFloat);
  }

  static at::Tensor on_gpu(const at::Tensor& x, at::ScalarType dtype) {
    return x.defined() ? x.to(at::kCUDA, dtype) : x;
  }

  c10::InferenceMode inference_;
};

struct Shape {
  int64_t batch, video, text, channels;
};

/// Numbers of channels just below and above what a warp loads at once, those of real models, and some that our kernels
/// do not support.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {1, 1, 0, 16},    {2, 37, 5, 48},      {2, 130, 33, 256},  {3, 4, 64, 264},   {1, 9, 9, 1016},
      {2, 40, 7, 1536}, {2, 600, 26, 1920},  {1, 50, 0, 2048},   {2, 300, 3, 3072}, {1, 17, 2, 3080},
      {2, 5, 1, 5120},  {1, 2000, 50, 5120}, {2, 9, 4, 100},     {1, 3, 2, 2047},   {1, 3, 2, 5128},
      {2, 1, 1, 8},     {4, 3000, 100, 64},  {1, 700, 90, 5376}, {1, 3, 2, 6152}};
  return all;
}

struct NormCase {
  Shape shape;
  at::ScalarType dtype;
  at::Tensor x, update;
  Norm norm;
  JointModulation first, second;

  enum class Kind { plain, affine, rms };

  NormCase(const Shape& s, at::ScalarType d, Kind kind) : shape(s), dtype(d) {
    const auto random = [d](at::IntArrayRef sizes, double offset = 0) {
      return (at::randn(sizes) + offset).to(d).to(at::kFloat);
    };
    x = random({s.batch, s.video + s.text, s.channels}, 3);
    update = random(x.sizes());
    if (kind == Kind::affine) norm = {random({s.channels}, 1), random({s.channels})};
    if (kind == Kind::rms) norm = {random({s.channels}, 1), {}, /*rms=*/true};
    for (Modulation* m : {&first.video, &first.text, &second.video, &second.text})
      *m = {random({s.batch, s.channels}), random({s.batch, s.channels}), random({s.batch, s.channels})};
  }

  /// Gives each modulation vector kRows rows and assigns a row to each token. Most tokens get the same row.
  void choose_rows() {
    constexpr int64_t kRows = 3;
    for (Modulation* m : {&first.video, &first.text, &second.video, &second.text})
      for (at::Tensor* vector : {&m->shift, &m->scale, &m->gate})
        *vector = at::randn({kRows, shape.channels}).to(dtype).to(at::kFloat);
    const at::Tensor rows = at::randint(10, {shape.batch, shape.video + shape.text}, at::kLong);
    first.row_of_token = second.row_of_token = at::where(rows.lt(kRows), rows, 1);
  }

  /// Copies the case to the GPU in its dtype. The modulation vectors become fp32 if fp32_vectors is true.
  NormCase on_gpu(bool fp32_vectors) const {
    NormCase moved = *this;
    const auto vectors = fp32_vectors ? at::kFloat : dtype;
    for (at::Tensor* t : {&moved.x, &moved.update, &moved.norm.weight, &moved.norm.bias})
      if (t->defined()) *t = t->to(at::kCUDA, dtype);
    for (JointModulation* joint : {&moved.first, &moved.second}) {
      for (Modulation* m : {&joint->video, &joint->text})
        *m = {m->shift.to(at::kCUDA, vectors), m->scale.to(at::kCUDA, vectors), m->gate.to(at::kCUDA, vectors)};
    }
    if (first.row_of_token.defined())
      moved.first.row_of_token = moved.second.row_of_token = first.row_of_token.to(at::kCUDA);
    return moved;
  }

  at::Tensor modulated() { return layer_norm_modulate(x, norm, 1e-5, shape.video, first); }
  void gated() { add_gated_(x, update, shape.video, first); }
  at::Tensor gated_modulated() { return add_gated_norm_modulate_(x, update, first, norm, 1e-5, shape.video, second); }
};

void for_each_case(const std::function<void(const NormCase&, bool)>& body) {
  for (const Shape& shape : shapes()) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      for (const auto kind : {NormCase::Kind::plain, NormCase::Kind::affine, NormCase::Kind::rms}) {
        SCOPED_TRACE(testing::Message() << shape.batch << " x (" << shape.video << " + " << shape.text << ") x "
                                        << shape.channels << " " << dtype << ", kind " << static_cast<int>(kind));
        body(NormCase(shape, dtype, kind), kind != NormCase::Kind::plain);
      }
    }
  }
}

TEST_F(LayersOnGpu, MatchTheCpuForRmsNorms) {
  for (const Shape& shape : shapes()) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(testing::Message() << shape.video + shape.text << " tokens of " << shape.channels << ", " << dtype);
      const std::vector<int64_t> sizes = {shape.batch, shape.video + shape.text, shape.channels};
      const at::Tensor x = rounded(sizes, dtype, 1), update = rounded(sizes, dtype, -2);
      const at::Tensor gate = rounded({shape.batch, shape.channels}, dtype),
                       factor = rounded({shape.batch, shape.channels}, dtype);
      at::Tensor expected = x.clone(), actual = on_gpu(x, dtype);
      add_rms_normed_(expected, update, 1e-6, gate);
      add_rms_normed_(actual, on_gpu(update, dtype), 1e-6, on_gpu(gate, dtype));
      EXPECT_TRUE(close_to(actual, expected, tolerance_of(dtype)));
      const at::Tensor normed = rms_norm_modulate(actual, 1e-6, on_gpu(factor, dtype));
      EXPECT_TRUE(close_to(normed, rms_norm_modulate(expected, 1e-6, factor), tolerance_of(dtype)));
      at::Tensor fused = on_gpu(x, dtype), again = fused.clone();
      const auto both = [&](at::Tensor& stream, RowFormat::Kind kind) {
        return add_rms_normed_modulate_(stream, on_gpu(update, dtype), 1e-6, on_gpu(gate, dtype), 1e-6,
                                        on_gpu(factor, dtype), {.kind = kind});
      };
      EXPECT_TRUE(both(fused, RowFormat::run_dtype).values.equal(normed));
      EXPECT_TRUE(fused.equal(actual));
      const Activation bits = both(again, RowFormat::e4m3), twice = quantize_rows(normed);
      EXPECT_TRUE(bits.values.view(at::kByte).equal(twice.values.view(at::kByte)));
      EXPECT_TRUE(bits.scale.equal(twice.scale));
    }
  }
}

TEST_F(LayersOnGpu, MatchTheCpuForNormAndModulation) {
  for_each_case([](const NormCase& test, bool fp32_vectors) {
    NormCase cpu = test, gpu = test.on_gpu(fp32_vectors);
    const at::Tensor out = gpu.modulated();
    EXPECT_EQ(out.scalar_type(), test.dtype);
    EXPECT_TRUE(close_to(out, cpu.modulated(), tolerance_of(test.dtype)));
    EXPECT_TRUE(close_to(gpu.x, test.x, 0));
  });
}

TEST_F(LayersOnGpu, MatchTheCpuForGatedAddition) {
  for_each_case([](const NormCase& test, bool fp32_vectors) {
    NormCase cpu = test, gpu = test.on_gpu(fp32_vectors);
    cpu.x = cpu.x.clone();
    cpu.gated();
    gpu.gated();
    EXPECT_TRUE(close_to(gpu.x, cpu.x, tolerance_of(test.dtype)));
  });
}

TEST_F(LayersOnGpu, MatchTheCpuForAdditionAndNormInOnePass) {
  for_each_case([](const NormCase& test, bool fp32_vectors) {
    NormCase cpu = test, gpu = test.on_gpu(fp32_vectors);
    cpu.x = cpu.x.clone();
    const at::Tensor expected = cpu.gated_modulated(), actual = gpu.gated_modulated();
    EXPECT_TRUE(close_to(gpu.x, cpu.x, tolerance_of(test.dtype)));
    EXPECT_TRUE(close_to(actual, expected, 2 * tolerance_of(test.dtype)));
  });
}

TEST_F(LayersOnGpu, MatchTheCpuForAdditionWithoutAGateAndNormInOnePass) {
  for_each_case([](const NormCase& test, bool fp32_vectors) {
    NormCase cpu = test, gpu = test.on_gpu(fp32_vectors);
    cpu.x = cpu.x.clone();
    cpu.first = gpu.first = {};
    const at::Tensor expected = cpu.gated_modulated(), actual = gpu.gated_modulated();
    EXPECT_TRUE(close_to(gpu.x, cpu.x, tolerance_of(test.dtype)));
    EXPECT_TRUE(close_to(actual, expected, 2 * tolerance_of(test.dtype)));
  });
}

TEST_F(LayersOnGpu, MatchTheCpuForModulationThatDiffersByToken) {
  for_each_case([](const NormCase& test, bool fp32_vectors) {
    NormCase cpu = test;
    cpu.choose_rows();
    NormCase gpu = cpu.on_gpu(fp32_vectors);
    cpu.x = cpu.x.clone();
    EXPECT_TRUE(close_to(gpu.modulated(), cpu.modulated(), tolerance_of(test.dtype)));
    const at::Tensor expected = cpu.gated_modulated(), actual = gpu.gated_modulated();
    EXPECT_TRUE(close_to(gpu.x, cpu.x, tolerance_of(test.dtype)));
    EXPECT_TRUE(close_to(actual, expected, 2 * tolerance_of(test.dtype)));
    cpu.gated();
    gpu.gated();
    EXPECT_TRUE(close_to(gpu.x, cpu.x, 2 * tolerance_of(test.dtype)));
  });
}

TEST_F(LayersOnGpu, ErrLessInAFusedNormThanTheOperatorsOfTorch) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    NormCase cpu({2, 500, 20, 1920}, dtype, NormCase::Kind::affine), gpu = cpu.on_gpu(false);
    const at::Tensor exact = cpu.modulated();
    at::Tensor unfused = at::layer_norm(gpu.x, {1920}, gpu.norm.weight, gpu.norm.bias, 1e-5);
    for (const auto& [first, count, m] : {std::tuple(int64_t{0}, int64_t{500}, &gpu.first.video),
                                          std::tuple(int64_t{500}, int64_t{20}, &gpu.first.text)})
      unfused.narrow(1, first, count).mul_((m->scale + 1).unsqueeze(1)).add_(m->shift.unsqueeze(1));
    const auto error = [&](const at::Tensor& x) {
      return (x.to(at::kCPU, at::kFloat) - exact).abs().mean().item<double>();
    };
    EXPECT_LT(error(gpu.modulated()), error(unfused)) << dtype;
  }
}

TEST_F(LayersOnGpu, NormalizeAPartOfALongerTensor) {
  NormCase cpu({2, 60, 9, 1920}, at::kBFloat16, NormCase::Kind::affine), gpu = cpu.on_gpu(true);
  const at::Tensor part = cpu.x.narrow(1, 0, 60), gpu_part = gpu.x.narrow(1, 0, 60);
  const JointModulation video = {cpu.first.video, {}}, gpu_video = {gpu.first.video, {}};
  EXPECT_TRUE(close_to(layer_norm_modulate(gpu_part, gpu.norm, 1e-5, 60, gpu_video),
                       layer_norm_modulate(part, cpu.norm, 1e-5, 60, video), tolerance_of(at::kBFloat16)));
  EXPECT_TRUE(
      close_to(layer_norm(gpu_part, gpu.norm, 1e-5), layer_norm(part, cpu.norm, 1e-5), tolerance_of(at::kBFloat16)));
}

TEST_F(LayersOnGpu, NormalizePreciselyFarFromZero) {
  for (const int64_t channels : {1920, 5120}) {
    NormCase cpu({1, 64, 0, channels}, at::kHalf, NormCase::Kind::plain);
    cpu.x = (cpu.x + 500).to(at::kHalf).to(at::kFloat);
    NormCase gpu = cpu.on_gpu(false);
    EXPECT_TRUE(close_to(gpu.modulated(), cpu.modulated(), tolerance_of(at::kHalf))) << channels;
  }
}

TEST_F(LayersOnGpu, KeepNanInItsRow) {
  for (const int64_t channels : {512, 3072, 5120}) {
    NormCase gpu = NormCase({1, 20, 4, channels}, at::kBFloat16, NormCase::Kind::affine).on_gpu(false);
    gpu.x[0][7][100] = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor finite = at::isfinite(gpu.gated_modulated()).all(2).cpu();
    EXPECT_EQ(finite.sum().item<int64_t>(), 23) << channels;
    EXPECT_FALSE(finite[0][7].item<bool>()) << channels;
  }
}

TEST_F(LayersOnGpu, AddEverythingOnceInAResidualStream) {
  NormCase cpu({2, 70, 6, 256}, at::kHalf, NormCase::Kind::affine), gpu = cpu.on_gpu(false);
  const auto run = [](NormCase& c) {
    Residual stream(c.x, c.shape.video);
    stream.add(c.update, c.first);
    const at::Tensor normed = stream.norm_modulate(c.norm, 1e-5, c.second);
    stream.add(normed, c.second);
    stream.add(normed, c.first);
    return stream.value();
  };
  EXPECT_TRUE(close_to(run(gpu), run(cpu), 4 * tolerance_of(at::kHalf)));
}

TEST_F(LayersOnGpu, MatchDoublePrecisionForProjectionsOfAFewRows) {
  for (const int64_t batch : {1, 2, 3, 4, 5}) {
    for (const auto& [inputs, outputs] : {std::pair(512, 11520), {512, 37}, {8, 1}, {264, 100}, {12, 30}}) {
      for (const auto dtype : {at::kBFloat16, at::kHalf}) {
        SCOPED_TRACE(testing::Message() << batch << " x " << inputs << " -> " << outputs << " " << dtype);
        const at::Tensor x = rounded({batch, inputs}, dtype), bias = rounded({outputs}, dtype);
        const at::Tensor first = rounded({outputs, inputs}, dtype), second = rounded({2 * outputs, inputs}, dtype);
        const Linear a = {on_gpu(first, dtype), on_gpu(bias, dtype)}, b = {on_gpu(second, dtype), {}};
        const std::vector<at::Tensor> results = linear_few_rows(on_gpu(x, dtype), {&a, &b});
        const at::Tensor wide = x.to(at::kDouble);
        EXPECT_TRUE(close_to(results[0], at::matmul(wide, first.to(at::kDouble).t()) + bias, tolerance_of(dtype)));
        EXPECT_TRUE(close_to(results[1], at::matmul(wide, second.to(at::kDouble).t()), tolerance_of(dtype)));
      }
    }
  }
}

TEST_F(LayersOnGpu, UseTheTanhApproximationForGeluInALinearLayer) {
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const at::Tensor x = rounded({2, 77, 64}, dtype), weight = rounded({256, 64}, dtype), bias = rounded({256}, dtype);
    const at::Tensor sum = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t()) / 8 + bias;
    const Linear layer = {on_gpu(weight / 8, dtype), on_gpu(bias, dtype)};
    const at::Tensor y = linear_gelu_tanh(on_gpu(x, dtype), layer);
    EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 77, 256}));
    EXPECT_TRUE(close_to(y, at::gelu(sum, "tanh"), dtype == at::kFloat ? 1e-3 : tolerance_of(dtype))) << dtype;
  }
}

TEST_F(LayersOnGpu, MatchTheCpuForASeparatePrologue) {
  using Norm = attention::Prologue::Norm;
  const int64_t tokens = 45, text = 7, heads = 3;
  for (const int64_t head_dim : {16, 40, 48, 64, 128, 160, 256}) {
    for (const auto norm : {Norm::none, Norm::layer, Norm::rms}) {
      for (const bool across : {false, true}) {
        for (const bool interleaved : {false, true}) {
          SCOPED_TRACE(testing::Message() << head_dim << " norm " << static_cast<int>(norm) << across << interleaved);
          const at::Tensor x = rounded({2, tokens, heads, head_dim}, at::kBFloat16, 1);
          attention::Prologue p;
          p.norm = norm;
          p.across_heads = across;
          p.interleaved = interleaved;
          const int64_t size = across ? heads * head_dim : head_dim;
          if (norm != Norm::none) {
            p.q_weight = at::randn({size}), p.k_weight = at::randn({size});
            p.q_bias = at::randn({size}), p.k_bias = at::randn({size});
          }
          const auto in_pairs = [&](const at::Tensor& angles) {
            return interleaved ? angles.repeat_interleave(2, 1) : at::cat({angles, angles}, 1);
          };
          p.rotary_cos = in_pairs(at::rand({tokens - text, head_dim / 2}));
          p.rotary_sin = in_pairs(at::rand({tokens - text, head_dim / 2}));
          attention::Prologue moved = p;
          for (at::Tensor* t :
               {&moved.q_weight, &moved.q_bias, &moved.k_weight, &moved.k_bias, &moved.rotary_cos, &moved.rotary_sin})
            if (t->defined()) *t = t->to(at::kCUDA);
          const at::Tensor gpu_x = on_gpu(x, at::kBFloat16);
          const attention::QueriesAndKeys cpu = attention::apply_prologue(p, x, x);
          const attention::QueriesAndKeys gpu = attention::apply_prologue(moved, gpu_x, gpu_x);
          EXPECT_TRUE(close_to(gpu.q, cpu.q, 0.02));
          EXPECT_TRUE(close_to(gpu.k, cpu.k, 0.02));
        }
      }
    }
  }
}

TEST_F(LayersOnGpu, MatchTheCpuForAPrologueThatDiffersByTokenAndHead) {
  const int64_t tokens = 345, heads = 3;
  for (const int64_t head_dim : {16, 48, 64, 128, 256})
    for (const int64_t text : {int64_t{0}, int64_t{7}, tokens})
      for (const auto& [weights, angles] : {std::pair(true, true), {true, false}, {false, true}}) {
        SCOPED_TRACE(testing::Message() << head_dim << " text " << text << weights << angles);
        const at::Tensor x = rounded({2, tokens, heads, head_dim}, at::kBFloat16, 1);
        attention::Prologue p, moved;
        p.norm = attention::Prologue::Norm::rms;
        p.q_weight = at::randn({head_dim}), p.k_weight = at::randn({head_dim});
        if (weights) p.text_q_weight = at::randn({head_dim}), p.text_k_weight = at::randn({head_dim});
        if (angles) {
          p.rotary_positions = at::randn({tokens - text, 4}) * 100;
          p.rotary_frequencies = at::randn({heads, 3, head_dim / 2});
        }
        moved = p;
        for (at::Tensor* t : {&moved.q_weight, &moved.k_weight, &moved.text_q_weight, &moved.text_k_weight,
                              &moved.rotary_positions, &moved.rotary_frequencies})
          if (t->defined()) *t = t->to(at::kCUDA);
        const at::Tensor gpu_x = on_gpu(x, at::kBFloat16);
        const attention::QueriesAndKeys cpu = attention::apply_prologue(p, x, x, text);
        const attention::QueriesAndKeys gpu = attention::apply_prologue(moved, gpu_x, gpu_x, text);
        EXPECT_TRUE(close_to(gpu.q, cpu.q, 0.02));
        EXPECT_TRUE(close_to(gpu.k, cpu.k, 0.02));
        // Compare with torch's operators in fp32, so that only the angles' error remains.
        if (angles && text < tokens && weights) {
          moved.norm = p.norm = attention::Prologue::Norm::none;
          for (attention::Prologue* each : {&p, &moved})
            each->q_weight = each->k_weight = each->text_q_weight = each->text_k_weight = at::Tensor();
          const at::Tensor wide = attention::apply_prologue(moved, x.cuda(), x.cuda(), text).q;
          EXPECT_TRUE(close_to(wide, attention::apply_prologue(p, x, x, text).q, 1e-3));
        }
      }
}

#ifdef SPARSEREEL_CUDA
TEST_F(LayersOnGpu, MatchDoublePrecisionForAGatedActivation) {
  for (const int64_t channels : {8, 264, 1024, 1032, 4096, 8192, 13824, 16384})
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(testing::Message() << channels << " " << dtype);
      const at::Tensor x = rounded({1, 37, 2 * channels}, dtype) * 4, wide = x.to(at::kDouble);
      const at::Tensor expected = wide.narrow(2, 0, channels) * at::silu(wide.narrow(2, channels, channels));
      const at::Tensor there = on_gpu(x, dtype);
      const Activation plain = swiglu_on_cuda(there, false), fp8 = swiglu_on_cuda(there, true);
      EXPECT_TRUE(close_to(plain.values, expected, tolerance_of(dtype)));
      const Activation apart = quantize_rows(plain.values);
      EXPECT_TRUE(at::equal(fp8.values.view(at::kByte), apart.values.view(at::kByte)));
      EXPECT_TRUE(at::equal(fp8.scale, apart.scale));
    }
}
#endif

TEST_F(LayersOnGpu, WriteIntoRowsOfALargerTensor) {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  for (const int64_t batch : {1, 2}) {
    const at::Tensor x = at::randn({batch, 70, 64}, options), weight = at::randn({48, 64}, options);
    for (const Linear& layer : {Linear{.weight = weight}, Linear{.weight = weight, .bias = at::randn({48}, options)}}) {
      const at::Tensor rows = at::full({batch, 100, 48}, 7, options);
      linear_out(rows.narrow(1, 20, 70), x, layer);
      EXPECT_TRUE(close_to(rows.narrow(1, 20, 70), linear(x, layer).to(at::kFloat).cpu(), tolerance_of(at::kBFloat16)));
      for (const at::Tensor& around : {rows.narrow(1, 0, 20), rows.narrow(1, 90, 10)})
        EXPECT_TRUE((around == 7).all().item<bool>());
    }
  }
}

/// Expects the same bits on both devices for arbitrary packed bytes. Only the payload of a NaN may differ.
TEST_F(LayersOnGpu, UnpackWeightsAsTheCpuDoes) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::i8, Dtype::f8_e4m3, Dtype::f8_e5m2, Dtype::q4_0,
                            Dtype::q4_1, Dtype::q5_0, Dtype::q5_1, Dtype::q8_0, Dtype::q2_k, Dtype::q3_k, Dtype::q4_k,
                            Dtype::q5_k, Dtype::q6_k, Dtype::iq4_nl, Dtype::iq4_xs}) {
    const int64_t rows = 37, columns = 768;  // no multiple of the number of elements that a thread block unpacks
    const at::Tensor bytes = at::randint(0, 256, {rows * packed_bytes(dtype, columns)}, at::kByte);
    const std::vector<StoredRows> stored = {{dtype, rows, columns, 0}};
    for (const at::Tensor& scale : {at::Tensor(), at::rand({rows})}) {
      for (const at::ScalarType to : {at::kFloat, at::kHalf, at::kBFloat16}) {
        const at::Tensor cpu = unpack(bytes, stored, scale, to);
        const at::Tensor gpu = unpack(bytes.cuda(), stored, scale.defined() ? scale.cuda() : scale, to).cpu();
        EXPECT_TRUE(at::allclose(gpu, cpu, 0, 0, /*equal_nan=*/true)) << static_cast<int>(dtype) << " to " << to;
      }
    }
  }
}

/// The rows are unpacked in several pieces, and have a delta (a LoRA) in each dtype that products support.
TEST_F(LayersOnGpu, AddDeltasToUnpackedWeightsAsTheCpuDoes) {
  const int64_t rows = 3001, columns = 3072, rank = 64;
  for (const Dtype dtype : {Dtype::q4_k, Dtype::q6_k, Dtype::q3_k, Dtype::i8}) {
    at::Tensor bytes = at::randint(0, 256, {rows * packed_bytes(dtype, columns)}, at::kByte);
    bytes.masked_fill_(bytes.bitwise_and(0x7C).gt(0x20), 0x11);  // keeps the scales below 0.01
    const at::Tensor scale = dtype == Dtype::i8 ? at::rand({rows}) * 0.01 : at::Tensor();
    std::vector<StoredRows> stored = {{dtype, rows, columns, 0}};
    for (const at::ScalarType of_delta : {at::kFloat, at::kHalf, at::kBFloat16})
      stored[0].deltas.push_back(
          {(at::randn({rows, rank}) * 0.1).to(of_delta), (at::randn({rank, columns}) * 0.1).to(of_delta), 0.3});
    std::vector<StoredRows> there = stored;
    for (LowRank& delta : there[0].deltas) delta = {delta.up.cuda(), delta.down.cuda(), delta.scale};
    for (const at::ScalarType to : {at::kFloat, at::kBFloat16}) {
      const at::Tensor cpu = unpack(bytes, stored, scale, to).to(at::kFloat);
      const at::Tensor gpu = unpack(bytes.cuda(), there, scale.defined() ? scale.cuda() : scale, to).to(at::kFloat);
      EXPECT_TRUE(at::allclose(gpu.cpu(), cpu, to == at::kFloat ? 1e-5 : 1.0 / 128, 1e-5))
          << static_cast<int>(dtype) << " to " << to;
    }
  }
}

#ifdef SPARSEREEL_CUDA
// The copies have shapes in which ranks exchange heads, with rows of 16 bytes and more. Copies of single words of 16
// bytes are among large copies, and there are more copies than one launch supports.
TEST_F(LayersOnGpu, CopySeveralTensorsAtOnceAsSeparateCopiesDo) {
  for (const int64_t head_dim : {8, 64, 128}) {
    const at::Tensor from = at::randn({2, 501, 3, 30, head_dim}).to(at::kCUDA, at::kBFloat16);
    const at::Tensor to = at::zeros({501, 2, 3 * 30 * head_dim + 8}, from.options()), expected = to.clone();
    std::vector<StridedCopy> copies;
    for (int64_t part = 0; part < 3; ++part) {
      for (const auto& [head, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 14}, {15, 15}}) {
        const auto place = [&, first = (part * 30 + head) * head_dim, n = count](const at::Tensor& x) {
          return x.narrow(2, first, n * head_dim).unflatten(2, {n, head_dim});
        };
        copies.push_back({.to = place(to), .from = from.select(2, part).narrow(2, head, count).transpose(0, 1)});
        place(expected).copy_(copies.back().from);
      }
    }
    const at::Tensor one = from.flatten(2).narrow(2, 0, 8).transpose(0, 1);
    for (int64_t token = 0; token < 60; ++token)
      copies.push_back({.to = to.narrow(0, token, 1).narrow(2, 90 * head_dim, 8), .from = one.narrow(0, token, 1)});
    expected.narrow(0, 0, 60).narrow(2, 90 * head_dim, 8).copy_(one.narrow(0, 0, 60));
    EXPECT_TRUE(copy_on_cuda(copies));
    EXPECT_TRUE(to.equal(expected)) << head_dim;
    to.zero_();
    CopiesBeside beside(to.device());
    beside.begin(copies);
    beside.join();
    EXPECT_TRUE(to.equal(expected)) << head_dim;
  }
  const at::Tensor odd = at::randn({7, 5}).to(at::kCUDA), copied = at::zeros_like(odd);
  EXPECT_FALSE(copy_on_cuda(std::vector<StridedCopy>{{.to = copied, .from = odd}}));
  copy_all(std::vector<StridedCopy>{{.to = copied, .from = odd}});
  EXPECT_TRUE(copied.equal(odd));
}
#endif

}  // namespace
}  // namespace sparsereel::models
