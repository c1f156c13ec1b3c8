// A fixture for tests that compare attend() on a GPU with exact attention on the CPU. Skips the tests without a GPU.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/attention.h"
#include "models/store/weights/device.h"

namespace sparsereel::attention {

struct Inputs {
  at::Tensor q, k, v;  // in fp32 on the CPU; the test's dtype represents the numbers exactly
};

struct Errors {
  double relative_l1, cosine;
};

inline Errors compare(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.to(at::kCPU, at::kDouble), e = expected.to(at::kDouble);
  return {.relative_l1 = ((a - e).abs().sum() / e.abs().sum()).item<double>(),
          .cosine = ((a * e).sum() / (a.norm() * e.norm())).item<double>()};
}

class AttendOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!models::cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
    at::manual_seed(1);
  }

  /// Rounds x to `dtype` and returns it in fp32.
  static at::Tensor rounded(const at::Tensor& x, at::ScalarType dtype = at::kBFloat16) {
    return x.to(dtype).to(at::kFloat);
  }

  /// Returns normally distributed data. As in real models, all keys of a head have a mean other than 0 in K and in V.
  static Inputs inputs(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t head_dim,
                       at::ScalarType dtype = at::kBFloat16) {
    const at::Tensor key_mean = at::randn({1, 1, heads, head_dim}),
                     value_mean = at::randn({1, 1, heads, head_dim}) * 0.3;
    return {.q = rounded(at::randn({batch, queries, heads, head_dim}), dtype),
            .k = rounded(at::randn({batch, keys, heads, head_dim}) + key_mean, dtype),
            .v = rounded(at::randn({batch, keys, heads, head_dim}) + value_mean, dtype)};
  }

  /// Makes neighboring tokens of x [B, N, H, D] similar, as they are in a video. Means can then replace tokens, and
  /// blocks differ from each other.
  static at::Tensor smooth(const at::Tensor& x, at::ScalarType dtype = at::kBFloat16) {
    const auto stretches = [&](int64_t size) {
      const at::Tensor each = at::randn({x.size(0), (x.size(1) + size - 1) / size, x.size(2), x.size(3)});
      return each.repeat_interleave(size, 1).narrow(1, 0, x.size(1));
    };
    return rounded(0.5 * x + 0.8 * stretches(16) + stretches(200), dtype);
  }

  static Inputs video(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t head_dim,
                      at::ScalarType dtype = at::kBFloat16) {
    const Inputs x = inputs(batch, queries, keys, heads, head_dim, dtype);
    return {.q = smooth(x.q, dtype), .k = smooth(x.k, dtype), .v = smooth(x.v, dtype)};
  }

  /// Returns normally distributed data in which four channels (two rotary pairs) hold most of K's energy. Gives
  /// `prologue` a rotary embedding; after it, these channels have a mean near 0.
  static Inputs loud_inputs(int64_t tokens, int64_t heads, int64_t head_dim, Prologue& prologue) {
    const auto normal = [&] { return at::randn({1, tokens, heads, head_dim}); };
    const Inputs x{.q = normal(), .k = normal(), .v = normal()};
    for (const int64_t pair : {int64_t{1}, head_dim / 4}) {
      x.q.narrow(3, 2 * pair, 2).mul_(0.3);
      x.k.select(3, 2 * pair).add_(30);
      x.k.select(3, 2 * pair + 1).sub_(30);
    }
    const at::Tensor angles =
        at::arange(tokens, at::kFloat).unsqueeze(1) *
        at::pow(1e4, at::arange(0, head_dim, 2) / -static_cast<double>(head_dim)).repeat_interleave(2);
    prologue.rotary_cos = angles.cos();
    prologue.rotary_sin = angles.sin();
    return {.q = rounded(x.q), .k = rounded(x.k), .v = rounded(x.v)};
  }

  /// Returns a prologue with an RMS norm. With `text_weights`, text tokens have other norm weights than video tokens.
  /// With `angles`, it also has rotary angles of up to 20 turns that differ by head.
  static Prologue prologue_by_part(int64_t video, int64_t heads, int64_t head_dim, bool text_weights, bool angles) {
    Prologue p;
    p.norm = Prologue::Norm::rms;
    p.q_weight = at::rand({head_dim}) + 0.5;
    p.k_weight = at::rand({head_dim}) + 0.5;
    if (text_weights) {
      p.text_q_weight = at::rand({head_dim}) * 2;
      p.text_k_weight = at::rand({head_dim}) * 2;
    }
    if (angles) {
      p.rotary_positions = at::randn({video, 4}) * 40;
      p.rotary_frequencies = at::randn({heads, 3, head_dim / 2});
    }
    return p;
  }

  Result on_gpu(const Inputs& x, Context context, at::ScalarType dtype = at::kBFloat16) {
    const auto move = [dtype](const at::Tensor& t) { return t.defined() ? t.to(at::kCUDA, dtype) : t; };
    context.prologue = on_device(context.prologue);
    context.policy.dense_operations = 0;  // always use the kernels, even for a short sequence
    Result result = attend(move(x.q), move(x.k), move(x.v), context, workspace_);
    std::vector<Statistics> layers(1);
    collect_counts(workspace_, layers);
    result.statistics += layers[static_cast<size_t>(context.slot)];
    return result;
  }

  static Prologue on_device(Prologue p) {
    for (at::Tensor* t : {&p.q_weight, &p.q_bias, &p.k_weight, &p.k_bias, &p.rotary_cos, &p.rotary_sin,
                          &p.text_q_weight, &p.text_k_weight, &p.rotary_positions, &p.rotary_frequencies})
      if (t->defined()) *t = t->to(at::kCUDA);
    return p;
  }

  /// Computes the call on the CPU in fp32, over the blocks that the context selects.
  static Result exact(const Inputs& x, Context context) {
    Workspace workspace;
    if (context.mode == Mode::quantized) context.mode = Mode::full;
    context.policy.defaults.pv_threshold = 32;
    return attend(x.q, x.k, x.v, context, workspace);
  }

  void expect_quantized_near_exact(const Inputs& x, Context context = {}, at::ScalarType dtype = at::kBFloat16,
                                   double bound = 0.06) {
    context.mode = Mode::quantized;
    context.return_lse = true;
    const Result gpu = on_gpu(x, context, dtype), cpu = exact(x, context);
    const Errors errors = compare(gpu.out, cpu.out);
    EXPECT_LT(errors.relative_l1, bound);
    EXPECT_GT(errors.cosine, 0.998);
    const at::Tensor finite = at::isfinite(cpu.lse);
    EXPECT_TRUE(at::equal(at::isfinite(gpu.lse.cpu()), finite));
    const at::Tensor lse_error = (gpu.lse.cpu() - cpu.lse).masked_select(finite).abs();
    if (lse_error.numel() > 0) {
      EXPECT_LT(lse_error.max().item<double>(), 0.05);
    }
    EXPECT_EQ(gpu.statistics.kept_blocks, gpu.statistics.total_blocks);
    // The relative error is a mean, which would hide a single wrong channel or token. So also look at the largest
    // error.
    EXPECT_LT((gpu.out.cpu().to(at::kFloat) - cpu.out).abs().max().item<double>(), 0.6);
  }

  void expect_harmless_skips(const Inputs& x, Context context = {.mode = Mode::sparse}, double bound = 0.08) {
    context.policy.defaults.topk = 1;
    context.policy.defaults.pv_threshold = 10;
    const Result gpu = on_gpu(x, context);
    EXPECT_GT(gpu.statistics.skipped_pv_blocks, 0);
    EXPECT_LT(gpu.statistics.skipped_pv_blocks, gpu.statistics.kept_blocks);
    EXPECT_LT(compare(gpu.out, exact(x, context).out).relative_l1, bound);
  }

  /// Sets all queries and keys to `value` and expects the output to be the mean of V.
  void expect_mean_of_v(double value, const Context& context, double bound) {
    Inputs x = inputs(1, 700, 4096, 1, 64);
    x.q.fill_(value);
    x.k.fill_(value);
    x.v = rounded(x.v + 1);
    const Result gpu = on_gpu(x, context);
    EXPECT_LT(compare(gpu.out, x.v.mean(1, true).expand_as(gpu.out)).relative_l1, bound);
  }

  Workspace workspace_;
};

}  // namespace sparsereel::attention
