// Tests outputs in e4m3 against the 16-bit outputs of the same kernel, and outputs that overwrite q.
#include <cmath>
#include <utility>

#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::attention {
namespace {

class EightBitOutput : public AttendOnGpu {
 protected:
  /// Compares the e4m3 output with the 16-bit output. Skips the test if the GPU's kernel does not write e4m3. If there
  /// are two batch entries, the values of the second are made smaller.
  void expect_rounded_output(Inputs x, Context context, at::ScalarType dtype = at::kBFloat16, double bound = 0.03) {
    if (x.q.size(0) > 1) x.v = rounded(x.v * at::tensor({1.0F, 0.01F}).view({2, 1, 1, 1}), dtype);
    const Result plain = on_gpu(x, context, dtype);
    EXPECT_FALSE(plain.out_scale.defined());
    context.takes_e4m3 = true;
    const Result result = on_gpu(x, context, dtype);
    EXPECT_EQ(result.kernel, plain.kernel);
    if (!result.out_scale.defined()) {
      EXPECT_EQ(result.out.scalar_type(), dtype);
      GTEST_SKIP() << "no output in 8 bits from " << result.kernel;
    }
    EXPECT_EQ(result.out.scalar_type(), at::kFloat8_e4m3fn);
    EXPECT_EQ(result.out.sizes(), x.q.sizes());
    const at::Tensor scale = result.out_scale.cpu();
    EXPECT_TRUE(at::allclose(scale, x.v.abs().amax({1, 2, 3}) / 448, 1e-6));
    const at::Tensor of_entry = scale.view({-1, 1, 1, 1});
    const at::Tensor out = result.out.cpu().to(at::kFloat) * of_entry, expected = plain.out.cpu().to(at::kFloat);
    const at::Tensor most = expected.abs() * (0x1p-4 + 0x1p-7) + of_entry * 0x1.1p-10;  // rounding of both outputs
    EXPECT_TRUE(((out - expected).abs() <= most).all().item<bool>());
    EXPECT_LT(compare(out, expected).relative_l1, bound);
  }
};

TEST_F(EightBitOutput, IsTheRoundedOutputIfEveryBlockIsKept) {
  for (const int64_t head_dim : {64, 128}) {
    expect_rounded_output(inputs(2, 700, 1000, 3, head_dim), {.mode = Mode::quantized});
    expect_rounded_output(inputs(1, 300, 300, 2, head_dim, at::kHalf), {.mode = Mode::quantized}, at::kHalf);
    expect_rounded_output(inputs(1, 100, 200, 2, head_dim - 12), {.mode = Mode::quantized});
  }
}

TEST_F(EightBitOutput, IsTheRoundedOutputIfTilesAreSplitIntoParts) {
  expect_rounded_output(inputs(1, 5000, 5000, 11, 64), {.mode = Mode::quantized});
}

TEST_F(EightBitOutput, IsTheRoundedOutputOfSparseAttention) {
  for (const Dropped dropped : {Dropped::none, Dropped::mean}) {
    Context context{.mode = Mode::sparse, .text_tokens = 40};
    context.policy.defaults.topk = 0.3;
    context.policy.dropped = dropped;
    context.policy.ranking = dropped == Dropped::mean ? Ranking::error : Ranking::mass;
    expect_rounded_output(inputs(2, 2000, 2000, 2, 128), context);
  }
}

TEST_F(EightBitOutput, IsTheRoundedOutputOfFewKeys) {
  for (const int64_t head_dim : {64, 128})
    expect_rounded_output(inputs(2, 700, 50, 5, head_dim), {.key_bias = at::randn({2, 50}).to(at::kCUDA)});
}

TEST_F(EightBitOutput, HandlesOutliersZerosAndNanInV) {
  Inputs x = inputs(1, 500, 2000, 2, 64);
  for (const auto& [size, bound] : {std::pair{1e3, 0.03}, std::pair{3e4, 0.1}}) {
    x.v[0][1001][1][7] = size;  // a token that the statistics' sample does not contain
    x.v = rounded(x.v);
    expect_rounded_output(x, {.mode = Mode::quantized}, at::kBFloat16, bound);
  }
  x.v.zero_();
  const Result zeros = on_gpu(x, {.mode = Mode::quantized, .takes_e4m3 = true});
  EXPECT_EQ(zeros.out.to(at::kFloat).count_nonzero().item<int64_t>(), 0);
  x.v[0][3][1][5] = std::nanf("");
  const Result bad = on_gpu(x, {.mode = Mode::quantized, .takes_e4m3 = true});
  EXPECT_TRUE(at::isnan(bad.out.to(at::kFloat)).any().item<bool>());
}

TEST_F(EightBitOutput, IsAbsentInCheckMode) {
  const Inputs x = inputs(1, 500, 500, 2, 64);
  const Result result = on_gpu(x, {.mode = Mode::check, .takes_e4m3 = true});
  EXPECT_FALSE(result.out_scale.defined());
  EXPECT_EQ(result.out.scalar_type(), at::kBFloat16);
}

class OutputOverQueries : public AttendOnGpu {
 protected:
  /// Runs attention on q, k and v that are parts of one tensor, as in transformers. Expects the same output whether or
  /// not it overwrites q.
  void expect_equal_output(int64_t tokens, int64_t head_dim, Context context) {
    SCOPED_TRACE(::testing::Message() << tokens << " tokens, head_dim " << head_dim << ", " << name(context.mode));
    const at::Tensor qkv = at::randn({2, tokens, 3, 3, head_dim}).to(at::kCUDA, at::kBFloat16);
    const at::Tensor q = qkv.select(2, 0), k = qkv.select(2, 1), v = qkv.select(2, 2);
    context.policy.defaults.topk = 0.3;
    context.policy.dense_operations = 0;
    const at::Tensor expected = attend(q, k, v, context, workspace_).out;
    context.may_overwrite_q = true;
    const at::Tensor out = attend(q, k, v, context, workspace_).out;
    EXPECT_EQ(out.const_data_ptr(), q.const_data_ptr());
    EXPECT_TRUE(out.equal(expected));
  }

  /// Runs the comparison for short calls, and for 5000 tokens, where some tiles are computed in parts.
  void expect_equal_outputs(const Context& context) {
    for (const int64_t head_dim : {64, 128, 256})
      for (const int64_t tokens : {333, 5000}) expect_equal_output(tokens, head_dim, context);
  }
};

TEST_F(OutputOverQueries, EqualsASeparateOutput) {
  expect_equal_outputs({.mode = Mode::quantized});
  expect_equal_outputs({.mode = Mode::sparse});
}

TEST_F(OutputOverQueries, EqualsASeparateOutputInSixteenBits) {
  Context context{.mode = Mode::sparse};
  context.policy.arithmetic = 16;
  expect_equal_outputs(context);
}

TEST_F(OutputOverQueries, EqualsASeparateOutputAfterAPrologue) {
  Context context{.mode = Mode::sparse};
  context.prologue.norm = Prologue::Norm::rms;
  for (const int64_t arithmetic : {8, 16}) {
    context.policy.arithmetic = arithmetic;
    expect_equal_outputs(context);
  }
}

TEST_F(OutputOverQueries, IsAvoidedIfQueriesShareMemory) {
  const at::Tensor q = at::randn({1, 500, 1, 64}).to(at::kCUDA, at::kBFloat16).expand({2, 500, 3, 64});
  const at::Tensor k = at::randn({2, 500, 3, 64}).to(at::kCUDA, at::kBFloat16);
  Context context{.mode = Mode::quantized};
  const at::Tensor expected = attend(q, k, k, context, workspace_).out;
  context.may_overwrite_q = true;
  EXPECT_TRUE(attend(q, k, k, context, workspace_).out.equal(expected));
}

}  // namespace
}  // namespace sparsereel::attention
