// If there are few keys, attention multiplies P (V W) instead of (P V) W, where P are the attention weights, V the
// values and W is the layer after attention. Compares the two.
#include "models/transformer/few_keys_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kBatch = 2, kQueries = 50, kKeys = 21, kHeads = 4, kHeadDim = 64;

class FewKeysProduct : public ::testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    weights_ = at::softmax(at::randn({kBatch, kQueries, kHeads, kKeys}) * 3, 3);
    v_ = at::randn({kBatch, kKeys, kHeads, kHeadDim});
    layer_ = {.weight = at::randn({96, kHeads * kHeadDim}) / 16, .bias = at::randn({96})};
  }

  /// Returns the attention weights, padded as in the result of attention_weights().
  attention::Result padded() const {
    attention::Result result;
    result.out = at::constant_pad_nd(weights_, {0, 3});
    return result;
  }

  at::Tensor expected() const { return linear(at::einsum("bnhk,bkhd->bnhd", {weights_, v_}).flatten(2), layer_); }

  static double relative_l1(const at::Tensor& y, const at::Tensor& exact) {
    return ((y - exact).abs().sum() / exact.abs().sum()).item<double>();
  }

  at::Tensor weights_, v_;
  Linear layer_;
};

TEST_F(FewKeysProduct, MatchesAttentionFollowedByTheLayer) {
  const at::Tensor y = linear_of_weights(padded(), v_, layer_);
  EXPECT_TRUE(at::allclose(y, expected(), 1e-4, 1e-5));
  layer_.bias = at::Tensor();
  EXPECT_TRUE(at::allclose(linear_of_weights(padded(), v_, layer_), expected(), 1e-4, 1e-5));
}

TEST_F(FewKeysProduct, AcceptsViewsOfAFusedProjection) {
  const at::Tensor kv = at::stack({v_ * 2, v_}, 2);
  EXPECT_TRUE(at::allclose(linear_of_weights(padded(), kv.select(2, 1), layer_), expected(), 1e-4, 1e-5));
}

TEST_F(FewKeysProduct, MultipliesInEightBitsIfTheLayerDoes) {
  const at::Tensor exact = expected();
  const Activation rows = quantize_rows(layer_.weight);
  layer_ = {.weight = rows.values, .bias = layer_.bias, .scale = rows.scale.view({-1})};
  attention::Result weights = padded();
  weights.out = (weights.out * 448).to(at::kFloat8_e4m3fn);
  weights.out_scale = at::full({kBatch}, 1.0 / 448);
  const double error = relative_l1(linear_of_weights(weights, v_, layer_), exact);
  EXPECT_GT(error, 1e-3);
  EXPECT_LT(error, 0.05);
}

TEST_F(FewKeysProduct, IsLessWorkForUpToHalfAsManyKeysAsHeadChannels) {
  const auto less = [&](int64_t keys, int64_t heads, int64_t head_dim) {
    return is_less_work(at::empty({1, keys, heads, head_dim}), layer_);
  };
  EXPECT_TRUE(less(1, 4, 128));
  EXPECT_TRUE(less(64, 4, 128));
  EXPECT_FALSE(less(65, 4, 128));
  EXPECT_TRUE(less(32, 4, 64));
  EXPECT_FALSE(less(33, 4, 64));
  layer_.scale = at::ones({96});
  EXPECT_TRUE(less(24, 4, 128));
  EXPECT_FALSE(less(24, 3, 128));  // not less: 72 columns are not a multiple of 16
}

TEST_F(FewKeysProduct, IsNotUsedForFp16) {
  EXPECT_TRUE(is_less_work(v_.to(at::kBFloat16), layer_));
  EXPECT_FALSE(is_less_work(v_.to(at::kHalf), layer_));
}

TEST_F(FewKeysProduct, RefusesValuesOfOtherShapes) {
  EXPECT_THROW(linear_of_weights(padded(), v_.narrow(1, 0, 16), layer_), Error);
  EXPECT_THROW(linear_of_weights(padded(), v_.narrow(0, 0, 1), layer_), Error);
  EXPECT_THROW(linear_of_weights(padded(), v_.narrow(2, 0, 2), layer_), Error);
}

TEST_F(FewKeysProduct, HasNoAttentionWeightsOnTheCpu) {
  EXPECT_FALSE(attention::attention_weights(v_, v_, {}).has_value());
  EXPECT_THROW(attention::attention_weights(v_, v_, {.mode = attention::Mode::sparse}), Error);
  EXPECT_THROW(attention::attention_weights(v_, v_.narrow(3, 0, 16), {}), Error);
}

}  // namespace
}  // namespace sparsereel::models
