// Tests cross-attention together with the layer W after it, computed as P (V W), on a GPU. Compares with (P V) W, which
// these tests call the usual order, and with fp32 on the CPU.
#include "models/transformer/few_keys_product.h"

#include <string>
#include <vector>

#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::models {
namespace {

struct FewKeysCase {
  int64_t batch, queries, keys, heads, head_dim;
};

class FewKeysProduct : public attention::AttendOnGpu {
 protected:
  static attention::Context context_of(const FewKeysCase& c) {
    attention::Context context;
    context.prologue.norm = attention::Prologue::Norm::rms;
    context.prologue.across_heads = true;
    // Large weights, so that a query attends more to some keys than to others.
    context.prologue.q_weight = at::rand({c.heads * c.head_dim}) * 3 + 0.5;
    context.prologue.k_weight = at::rand({c.heads * c.head_dim}) + 0.5;
    context.key_bias = at::randn({c.batch, c.keys});
    return context;
  }

  static Linear layer(int64_t out, int64_t in) {
    return {.weight = rounded(at::randn({out, in}) / 8 * at::linspace(-2, 2, out).exp2().unsqueeze(1)),
            .bias = rounded(at::randn({out}))};
  }

  static Linear on_gpu(const Linear& layer, at::ScalarType dtype, bool fp8) {
    Linear result = {.weight = layer.weight.to(at::kCUDA, dtype), .bias = layer.bias.to(at::kCUDA, dtype)};
    if (!fp8) return result;
    const Activation rows = quantize_rows(result.weight);
    return {.weight = rows.values, .bias = result.bias, .scale = rows.scale.view({-1})};
  }

  static double error(const at::Tensor& y, const at::Tensor& exact) { return attention::compare(y, exact).relative_l1; }

  /// Expects the error of P (V W) to be at most 1.2 times that of the usual order. Both are compared with fp32 on the
  /// CPU.
  void expect_no_worse(const FewKeysCase& c, at::ScalarType dtype, bool fp8, double most) {
    SCOPED_TRACE(testing::Message() << c.keys << " keys, " << c.heads << " x " << c.head_dim << ", " << dtype);
    const attention::Inputs x = inputs(c.batch, c.queries, c.keys, c.heads, c.head_dim, dtype);
    const Linear exact_layer = layer(3 * c.head_dim, c.heads * c.head_dim);
    attention::Context context = context_of(c);
    const at::Tensor exact = linear(AttendOnGpu::exact(x, context).out.flatten(2), exact_layer);

    context.prologue = on_device(context.prologue);
    context.key_bias = context.key_bias.to(at::kCUDA);
    context.takes_e4m3 = fp8;
    const auto move = [&](const at::Tensor& t) { return t.to(at::kCUDA, dtype); };
    const Linear gpu_layer = on_gpu(exact_layer, dtype, fp8);
    ASSERT_TRUE(is_less_work(x.v, gpu_layer));
    const auto weights = attention::attention_weights(move(x.q), move(x.k), context);
    ASSERT_TRUE(weights.has_value());
    EXPECT_EQ(weights->out_scale.defined(), fp8);
    const at::Tensor other = linear_of_weights(*weights, move(x.v), gpu_layer);
    EXPECT_EQ(other.sizes(), exact.sizes());
    EXPECT_EQ(other.scalar_type(), dtype);

    context.takes_e4m3 = false;
    const at::Tensor attended = attend(move(x.q), move(x.k), move(x.v), context, workspace_).out;
    const double usual = error(linear(attended.flatten(2), gpu_layer), exact), ours = error(other, exact);
    EXPECT_LT(ours, most);
    if (c.keys > 1) {  // with one key, the usual order rounds no intermediate result
      EXPECT_LT(ours, 1.2 * usual);
    }
  }
};

TEST_F(FewKeysProduct, ErrsAboutAsMuchAsTheUsualOrderOfProducts) {
  for (const FewKeysCase& c : {FewKeysCase{2, 333, 22, 4, 128}, FewKeysCase{1, 1000, 64, 3, 128},
                               FewKeysCase{1, 100, 1, 2, 128}, FewKeysCase{3, 200, 32, 4, 64}}) {
    expect_no_worse(c, at::kBFloat16, false, 0.01);
  }
}

TEST_F(FewKeysProduct, ErrsAboutAsMuchAsTheUsualOrderOfProductsInEightBits) {
  const std::string reason = why_no_fp8(at::Device(at::kCUDA, 0));
  if (!reason.empty()) GTEST_SKIP() << reason;
  for (const FewKeysCase& c :
       {FewKeysCase{2, 333, 22, 4, 128}, FewKeysCase{1, 1000, 64, 4, 128}, FewKeysCase{3, 200, 32, 4, 64}})
    expect_no_worse(c, at::kBFloat16, true, 0.05);
}

TEST_F(FewKeysProduct, HasWeightsThatAddUpToOneAndZeroPadding) {
  const at::Tensor q = at::randn({2, 100, 3, 128}).to(at::kCUDA, at::kHalf), k = q.narrow(1, 0, 21);
  const auto weights = attention::attention_weights(q, k, {});
  ASSERT_TRUE(weights.has_value());
  EXPECT_EQ(weights->out.sizes(), (std::vector<int64_t>{2, 100, 3, 24}));
  EXPECT_LT((weights->out.to(at::kFloat).sum(3) - 1).abs().max().item<double>(), 4e-3);
  EXPECT_EQ(weights->out.narrow(3, 21, 3).count_nonzero().item<int64_t>(), 0);
}

TEST_F(FewKeysProduct, IsUsedOnlyForFewKeys) {
  const at::Tensor q = at::randn({1, 100, 2, 128}).to(at::kCUDA, at::kHalf);
  EXPECT_FALSE(attention::attention_weights(q, q.narrow(1, 0, 65), {}).has_value());
  EXPECT_FALSE(attention::attention_weights(q.to(at::kFloat), q.narrow(1, 0, 20).to(at::kFloat), {}).has_value());
  attention::Context causal;
  causal.causal = true;
  EXPECT_FALSE(attention::attention_weights(q, q.narrow(1, 0, 20), causal).has_value());
  EXPECT_FALSE(is_less_work(q.narrow(1, 0, 65), {}));
}

}  // namespace
}  // namespace sparsereel::models
