// Compares linear layers on a CPU with double precision, whether oneDNN or at::linear() computes them. Also tests the
// names of their weights, and the guard that gives OpenMP all threads.
#include "models/layers/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <sstream>

#include "models/layers/cpu_threads.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;

at::Tensor exact(const at::Tensor& x, const Linear& layer) {
  const at::Tensor y = at::matmul(x.to(at::kDouble), layer.weight.to(at::kDouble).t());
  return layer.bias.defined() ? y + layer.bias.to(at::kDouble) : y;
}

class LinearLayer : public ::testing::Test {
 protected:
  LinearLayer() { at::manual_seed(5); }
  c10::InferenceMode inference_;
};

TEST_F(LinearLayer, MatchesDoublePrecisionInEveryDtype) {
  for (const auto& [dtype, tolerance] :
       {std::pair(at::kFloat, 2e-6), std::pair(at::kBFloat16, 1e-2), std::pair(at::kHalf, 2e-3)}) {
    const auto options = at::TensorOptions().dtype(dtype);
    const at::Tensor x = at::randn({2, 33, 24}, options), weight = at::randn({40, 24}, options),
                     bias = at::randn({40}, options);
    for (const Linear& layer : {Linear{weight, bias}, Linear{weight, {}}}) {
      const at::Tensor y = linear(x, layer);
      EXPECT_EQ(y.scalar_type(), dtype);
      EXPECT_TRUE(close_to(y, exact(x, layer), tolerance)) << dtype;
      const at::Tensor activated = linear_gelu_tanh(x, layer);
      EXPECT_TRUE(close_to(activated, at::gelu(exact(x, layer), "tanh"), tolerance)) << dtype;
    }
  }
}

TEST_F(LinearLayer, ComputesASubsetOfItsOutputs) {
  const at::Tensor x = at::randn({2, 33, 64});
  const at::Tensor weight = at::randn({96, 64}), bias = at::randn({96});
  const Activation rows = quantize_rows(weight);
  const Linear fp8{.weight = rows.values, .bias = bias, .scale = rows.scale.flatten()};
  for (const Linear& layer : {Linear{weight, bias}, Linear{weight, {}}, fp8})
    EXPECT_TRUE(close_to(linear(x, layer.outputs(32, 48)), linear(x, layer).narrow(2, 32, 48), 1e-5));
}

TEST_F(LinearLayer, MatchesDoublePrecisionGeluOverItsWholeRange) {
  const at::Tensor x = at::linspace(-12, 12, 4001).unsqueeze(1);
  const Linear identity = {at::ones({1, 1}), at::zeros({1})};
  const at::Tensor expected = at::gelu(x.to(at::kDouble), "tanh");
  EXPECT_LT((linear_gelu_tanh(x, identity) - expected).abs().max().item<double>(), 2e-6);
}

TEST_F(LinearLayer, AcceptsStridedRowsAndNoRows) {
  const Linear layer = {at::randn({8, 16}), at::randn({8})};
  for (const auto& [dtype, tolerance] : {std::pair(at::kFloat, 2e-6), std::pair(at::kBFloat16, 1e-2)}) {
    const Linear each = {layer.weight.to(dtype), layer.bias.to(dtype)};
    const at::Tensor wide = at::randn({3, 10, 32}).to(dtype), x = wide.narrow(2, 16, 16);
    for (const at::Tensor& rows : {x, x.narrow(0, 1, 1), x.narrow(1, 2, 5)})
      EXPECT_TRUE(close_to(linear(rows, each), exact(rows, each), tolerance)) << dtype << rows.sizes();
  }
  EXPECT_EQ(linear(at::empty({0, 16}), layer).sizes(), at::IntArrayRef({0, 8}));
}

// If OpenMP gives only one of the two threads that libtorch asks for, oneDNN's product leaves rows out. The layer must
// still compute all rows.
TEST_F(LinearLayer, IsCorrectIfOpenMpGivesFewerThreads) {
  const int threads = at::get_num_threads(), levels = omp_get_max_active_levels();
  at::set_num_threads(2);
  omp_set_max_active_levels(0);
  const at::Tensor x = at::randn({2, 300, 256});
  const Linear layer = {at::randn({512, 256}), at::randn({512})};
  EXPECT_FALSE(gives_all_threads());
  EXPECT_TRUE(close_to(linear(x, layer), exact(x, layer), 1e-5));
  EXPECT_TRUE(close_to(linear_gelu(x, layer), at::gelu(exact(x, layer)), 1e-5));
  EXPECT_TRUE(close_to(linear_gelu_tanh(x, layer), at::gelu(exact(x, layer), "tanh"), 1e-5));
  omp_set_max_active_levels(levels);
  at::set_num_threads(threads);
}

TEST(AllThreads, AreGivenDuringTheGuardsLifetime) {
  const int levels = omp_get_max_active_levels();
  omp_set_dynamic(1);
  omp_set_max_active_levels(0);
  EXPECT_FALSE(gives_all_threads());
  {
    const AllThreads all;
    EXPECT_TRUE(gives_all_threads());
    EXPECT_GT(omp_get_max_active_levels(), 0);
  }
  EXPECT_EQ(omp_get_dynamic(), 1);
  EXPECT_EQ(omp_get_max_active_levels(), 0);
  omp_set_dynamic(0);
  omp_set_max_active_levels(levels);
}

/// Returns a parameter's names, stored shape and shape as text.
std::string text_of(const Parameter& parameter) {
  std::ostringstream text;
  for (const std::string& name : parameter.names) text << name << " ";
  text << at::IntArrayRef(parameter.stored) << " " << at::IntArrayRef(parameter.shape);
  return text.str();
}

TEST(LinearWeights, ListTheirNamesAndShapesInACheckpoint) {
  std::vector<std::string> listed;
  const Visit note = [&](at::Tensor&, const Parameter& parameter) { listed.push_back(text_of(parameter)); };
  Linear layer;
  layer.weights(note, "a", 2, 3);
  layer.weights(note, "b", 2, 12, /*has_bias=*/false, {2, 3, 2, 2});
  layer.packed_weights(note, {"q", "k", "v"}, 2, 3);
  EXPECT_THAT(listed,
              ::testing::ElementsAre("a.weight [2, 3] [2, 3]", "a.bias [2] [2]", "b.weight [2, 3, 2, 2] [2, 12]",
                                     "q.weight k.weight v.weight [2, 3] [6, 3]", "q.bias k.bias v.bias [2] [6]"));
}

TEST(FeedForward, MultipliesTheFirstHalfBySiluOfTheSecond) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::randn({2, 5, 12});
  const Linear in = {.weight = at::randn({20, 12})}, out = {.weight = at::randn({7, 10}), .bias = at::randn({7})};
  const at::Tensor hidden = at::linear(x, in.weight);
  const at::Tensor gated = hidden.narrow(2, 0, 10) * at::silu(hidden.narrow(2, 10, 10));
  EXPECT_TRUE(test::close_to(feed_forward_swiglu(x, in, out), at::linear(gated, out.weight, out.bias), 1e-5));
}

}  // namespace
}  // namespace sparsereel::models
