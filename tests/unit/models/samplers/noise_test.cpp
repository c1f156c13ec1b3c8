// Tests that the noise equals that of at::randn() and leaves the generator in the same state.
#include "models/samplers/noise.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

class Noise : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(Noise, MatchesLibtorchBitwise) {
  at::Generator theirs = at::make_generator<at::CPUGeneratorImpl>(7), ours = theirs.clone();
  for (const int64_t count : {1, 15, 16, 17, 31, 32, 1000, 100'000}) {
    const at::Tensor expected = at::randn({count}, theirs, GetParam()), drawn = draw_noise({count}, GetParam(), ours);
    ASSERT_EQ(drawn.scalar_type(), GetParam());
    EXPECT_TRUE(drawn.view(at::kByte).equal(expected.view(at::kByte))) << count;
    EXPECT_TRUE(ours.get_state().equal(theirs.get_state())) << count;
  }
}

TEST_P(Noise, HasTheRequestedShape) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  EXPECT_EQ(draw_noise({1, 3, 16, 5}, GetParam(), generator).sizes(), at::IntArrayRef({1, 3, 16, 5}));
  EXPECT_EQ(draw_noise({0, 16}, GetParam(), generator).numel(), 0);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Noise, ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16));

}  // namespace
}  // namespace sparsereel::models
