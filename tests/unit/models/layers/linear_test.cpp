// Linear layers against double precision, whichever library computes them.
#include "models/layers/linear.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;

at::Tensor exact(const at::Tensor& x, const Affine& layer) {
  const at::Tensor y = at::matmul(x.to(at::kDouble), layer.weight.to(at::kDouble).t());
  return layer.bias.defined() ? y + layer.bias.to(at::kDouble) : y;
}

class Linear : public ::testing::Test {
 protected:
  Linear() { at::manual_seed(5); }
  c10::InferenceMode inference_;
};

TEST_F(Linear, MatchesDoublePrecisionInEveryDtype) {
  for (const auto& [dtype, tolerance] :
       {std::pair(at::kFloat, 2e-6), std::pair(at::kBFloat16, 1e-2), std::pair(at::kHalf, 2e-3)}) {
    const auto options = at::TensorOptions().dtype(dtype);
    const at::Tensor x = at::randn({2, 33, 24}, options), weight = at::randn({40, 24}, options),
                     bias = at::randn({40}, options);
    for (const Affine& layer : {Affine{weight, bias}, Affine{weight, {}}}) {
      const at::Tensor y = linear(x, layer);
      EXPECT_EQ(y.scalar_type(), dtype);
      EXPECT_TRUE(close_to(y, exact(x, layer), tolerance)) << dtype;
      const at::Tensor activated = linear_gelu_tanh(x, layer);
      EXPECT_TRUE(close_to(activated, at::gelu(exact(x, layer), "tanh"), tolerance)) << dtype;
    }
  }
}

TEST_F(Linear, GeluMatchesDoublePrecisionFromTailToTail) {
  const at::Tensor x = at::linspace(-12, 12, 4001).unsqueeze(1);
  const Affine identity = {at::ones({1, 1}), at::zeros({1})};
  const at::Tensor expected = at::gelu(x.to(at::kDouble), "tanh");
  EXPECT_LT((linear_gelu_tanh(x, identity) - expected).abs().max().item<double>(), 2e-6);
}

TEST_F(Linear, TakesStridedRowsAndNoRowsAtAll) {
  const Affine layer = {at::randn({8, 16}), at::randn({8})};
  const at::Tensor x = at::randn({3, 10, 32}).narrow(2, 16, 16);
  EXPECT_TRUE(close_to(linear(x, layer), exact(x, layer), 2e-6));
  EXPECT_EQ(linear(at::empty({0, 16}), layer).sizes(), at::IntArrayRef({0, 8}));
}

}  // namespace
}  // namespace sparsereel::models
