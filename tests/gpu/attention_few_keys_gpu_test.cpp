// Tests the GPU kernel for calls with few keys, such as cross-attention, against fp32 on the CPU.
#include <cstdio>
#include <limits>

#include "attention/cuda/launch.h"
#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::attention {
namespace {

struct FewKeysCase {
  int64_t batch, queries, keys, heads, head_dim;
};

class FewKeysOnGpu : public AttendOnGpu {
 protected:
  /// Returns a prologue with an RMS norm across heads, such as cross-attention has.
  static Prologue norms(int64_t channels) {
    Prologue p;
    p.norm = Prologue::Norm::rms;
    p.across_heads = true;
    p.q_weight = at::rand({channels}) + 0.5;
    p.k_weight = at::rand({channels}) + 0.5;
    return p;
  }

  static int64_t most_keys([[maybe_unused]] int64_t head_dim) {
#ifdef SPARSEREEL_CUDA
    return cuda::most_few_keys(static_cast<int>(head_dim));
#else
    return 0;
#endif
  }

  /// Compares the GPU's result with the CPU's if the keys fit into the GPU's shared memory. Prints a note if they do
  /// not fit.
  void expect_near_exact(const Inputs& x, Context context, at::ScalarType dtype) {
    if (const int64_t most = most_keys(x.q.size(3)); x.k.size(1) > most) {
      std::printf("left out: %ld keys, where this GPU takes %ld\n", static_cast<long>(x.k.size(1)),
                  static_cast<long>(most));
      return;
    }
    Context of_gpu = context;
    if (context.key_bias.defined()) of_gpu.key_bias = context.key_bias.to(at::kCUDA);
    const Result gpu = on_gpu(x, of_gpu, dtype), cpu = exact(x, context);
    EXPECT_EQ(gpu.kernel, "cuda, all keys in shared memory");
    EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, dtype == at::kHalf ? 1e-3 : 8e-3);
    EXPECT_LT((gpu.out.cpu().to(at::kFloat) - cpu.out).abs().max().item<double>(), dtype == at::kHalf ? 0.01 : 0.08);
  }
};

TEST_F(FewKeysOnGpu, EqualsExactAttention) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    for (const FewKeysCase& c :
         {FewKeysCase{1, 1, 1, 1, 128}, FewKeysCase{2, 17, 64, 3, 64}, FewKeysCase{1, 1000, 65, 2, 128},
          FewKeysCase{3, 333, 130, 5, 64}, FewKeysCase{1, 5000, 21, 12, 128}, FewKeysCase{2, 200, 257, 4, 128}}) {
      SCOPED_TRACE(::testing::Message() << c.batch << " x " << c.queries << " to " << c.keys << " keys, " << c.heads
                                        << " heads of " << c.head_dim << ", " << dtype);
      expect_near_exact(inputs(c.batch, c.queries, c.keys, c.heads, c.head_dim, dtype), {}, dtype);
    }
  }
}

TEST_F(FewKeysOnGpu, NormalizesAcrossHeads) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    expect_near_exact(inputs(2, 700, 100, 12, 128, dtype), {.prologue = norms(12 * 128)}, dtype);
    expect_near_exact(inputs(1, 333, 40, 10, 64, dtype), {.prologue = norms(10 * 64)}, dtype);
    // With so many channels, each lane of a warp reads twice.
    expect_near_exact(inputs(1, 100, 30, 20, 128, dtype), {.prologue = norms(20 * 128)}, dtype);
  }
}

TEST_F(FewKeysOnGpu, NormalizesHeadsThatAreNotContiguous) {
  const Inputs x = inputs(2, 150, 50, 20, 128);
  const Context context{.prologue = norms(20 * 128)};
  Context of_gpu = context;
  of_gpu.prologue = on_device(context.prologue);
  const auto heads_first = [](const at::Tensor& t) {
    return t.to(at::kCUDA, at::kBFloat16).transpose(1, 2).contiguous().transpose(1, 2);
  };
  const Result gpu = attend(heads_first(x.q), heads_first(x.k), heads_first(x.v), of_gpu, workspace_);
  EXPECT_LT(compare(gpu.out, exact(x, context).out).relative_l1, 8e-3);
}

TEST_F(FewKeysOnGpu, AddsTheBiasOfEachKey) {
  const Inputs x = inputs(2, 300, 90, 3, 128);
  at::Tensor bias = at::randn({2, 90}) * 3;
  bias[0].narrow(0, 10, 80).fill_(-std::numeric_limits<float>::infinity());
  bias[1].narrow(0, 0, 70).fill_(-std::numeric_limits<float>::infinity());
  expect_near_exact(x, {.key_bias = bias}, at::kBFloat16);
  expect_near_exact(x, {.key_bias = bias, .prologue = norms(3 * 128)}, at::kBFloat16);
}

TEST_F(FewKeysOnGpu, AcceptsPartsOfOneProjection) {
  const Inputs x = inputs(2, 500, 80, 4, 64);
  const at::Tensor q = at::cat({x.q, x.q + 1}, 2).to(at::kCUDA, at::kBFloat16).narrow(2, 0, 4);
  const at::Tensor kv = at::stack({x.k, x.v}, 2).to(at::kCUDA, at::kBFloat16);
  for (const Context& context : {Context{}, Context{.prologue = norms(4 * 64)}}) {
    Context of_gpu = context;
    of_gpu.prologue = on_device(context.prologue);
    const Result gpu = attend(q, kv.select(2, 0), kv.select(2, 1), of_gpu, workspace_);
    EXPECT_LT(compare(gpu.out, exact(x, context).out).relative_l1, 8e-3);
  }
}

TEST_F(FewKeysOnGpu, LeavesManyKeysAndOtherHeadSizesToTorch) {
  for (const FewKeysCase& c : {FewKeysCase{1, 64, 1000, 2, 128}, FewKeysCase{1, 64, 20, 2, 96}}) {
    const Inputs x = inputs(c.batch, c.queries, c.keys, c.heads, c.head_dim);
    Context context{.key_bias = at::randn({c.batch, c.keys})};
    const Result cpu = exact(x, context);
    context.key_bias = context.key_bias.to(at::kCUDA);
    const Result gpu = on_gpu(x, context);
    EXPECT_EQ(gpu.kernel, "torch sdpa");
    EXPECT_LT(compare(gpu.out, cpu.out).relative_l1, 2e-2);
  }
}

}  // namespace
}  // namespace sparsereel::attention
