// Tests which calls attend() refuses, and which modes each device supports.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "hilbert/error.h"
#include "tests/unit/attention/attend_on_cpu.h"

namespace sparsereel::attention {
namespace {

using ::testing::HasSubstr;

template <typename F>
void expect_refused(const F& f, const std::string& cause) {
  try {
    f();
    ADD_FAILURE() << "accepted: " << cause;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(cause));
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST(Attend, RefusesTensorsItCannotRun) {
  const Inputs x(20);
  Workspace w;
  const Context c;
  expect_refused([&] { attend(x.q, x.k, at::Tensor(), c, w); }, "v undefined");
  expect_refused([&] { attend(x.q[0], x.k, x.v, c, w); }, "q is [20, 3, 64]");
  expect_refused([&] { attend(x.q, x.k, x.v.narrow(1, 0, 3), c, w); }, "v [2, 3, 3, 64]");
  expect_refused([&] { attend(x.q, x.k.narrow(2, 0, 2), x.v.narrow(2, 0, 2), c, w); }, "k [2, 20, 2, 64]");
  expect_refused([&] { attend(x.q, x.k.to(at::kHalf), x.v, c, w); }, "Half");
  expect_refused([&] { run(Inputs(20, 64, at::kDouble), c); }, "Double");
  expect_refused([&] { run(Inputs(20, 8), c); }, "8]");
  expect_refused([&] { run(Inputs(20, 257), c); }, "257]");
  expect_refused([&] { attend(x.q.narrow(1, 0, 0), x.k, x.v, c, w); }, "[2, 0, 3, 64]");
  expect_refused([&] { attend(x.q.transpose(2, 3).contiguous().transpose(2, 3), x.k, x.v, c, w); }, "q is");
}

TEST(Attend, RefusesContextsThatDoNotFit) {
  const Inputs x(100);
  const auto refused = [&](const std::function<void(Context&)>& spoil, const std::string& cause) {
    Context context;
    spoil(context);
    expect_refused([&] { run(x, context); }, cause);
  };
  refused([](Context& c) { c.text_tokens = 101; }, "text_tokens is 101");
  refused([](Context& c) { c.scale = NAN; }, "scale is not finite");
  refused([](Context& c) { c.key_lengths = at::tensor({1, 2, 3}, at::kLong); }, "key_lengths is [3]");
  refused([](Context& c) { c.key_lengths = at::tensor({1, 101}, at::kLong); }, "to 101");
  refused([](Context& c) { c.key_bias = at::zeros({2, 99}); }, "key_bias is [2, 99]");
  refused([](Context& c) { c.key_bias = at::zeros({2, 100}, at::kDouble); }, "of Double");
  refused(
      [](Context& c) {
        c.key_bias = at::zeros({2, 100});
        c.mode = Mode::sparse;
      },
      "key_bias was given in mode sparse");
  refused([](Context& c) { c.block_map = BlockMap(2, 3, 2, 3, true); }, "block_map does not fit");
  refused([](Context& c) { c.policy.defaults.topk = 0; }, "topk is 0");
  refused([](Context& c) { c.policy.selection_rows = 100; }, "selection_rows is 100");
  refused([](Context& c) { c.policy.arithmetic = 32; }, "arithmetic is 32");
  refused(
      [](Context& c) {
        c.mode = Mode::quantized;
        c.policy.arithmetic = 16;
      },
      "a quantized call computes every block in 8 bits, but arithmetic is 16");
  refused([](Context& c) { c.prologue.q_weight = at::ones({64}); }, "norm none");
  refused([](Context& c) { c.prologue.rotary_cos = at::ones({100, 64}); }, "only one of");
  refused([](Context& c) { c.prologue.rotary_pairs = at::ones({100, 32, 2}, at::kHalf); }, "without rotary_cos");
  refused(
      [](Context& c) {
        c.prologue.norm = Prologue::Norm::rms;
        c.prologue.k_weight = at::ones({63});
      },
      "k_weight is [63]");
  refused(
      [](Context& c) {
        c.text_tokens = 10;
        c.prologue.rotary_cos = c.prologue.rotary_sin = at::ones({100, 64});
      },
      "rotary_cos is [100, 64]");
  refused([](Context& c) { c.prologue.text_q_weight = at::ones({64}); }, "without a norm");
  refused([](Context& c) { c.prologue.rotary_positions = at::ones({100, 4}); }, "only one of rotary_positions");
  const auto by_head = [](Context& c) {
    c.prologue.rotary_positions = at::ones({100, 4});
    c.prologue.rotary_frequencies = at::ones({2, 3, 32});
  };
  refused(
      [&](Context& c) {
        by_head(c);
        c.prologue.rotary_positions = at::ones({100, 3});
      },
      "rotary_positions is [100, 3]");
  refused(
      [&](Context& c) {
        by_head(c);
        c.prologue.rotary_frequencies = at::ones({3, 2, 32});
      },
      "rotary_frequencies is [3, 2, 32]");
  refused(
      [&](Context& c) {
        by_head(c);
        c.prologue.interleaved = false;
      },
      "interleaved is not set");
}

TEST(UnsupportedReason, IsEmptyOnACpuAndForFullAttention) {
  for (const Mode mode : {Mode::full, Mode::quantized, Mode::sparse, Mode::check})
    EXPECT_EQ(unsupported_reason(mode, at::kCPU, at::kFloat), "");
  EXPECT_EQ(unsupported_reason(Mode::full, at::kCUDA, at::kFloat), "");
}

TEST(UnsupportedReason, NamesWhatTheKernelsNeed) {
  for (const Mode mode : {Mode::quantized, Mode::sparse, Mode::check})
    EXPECT_THAT(unsupported_reason(mode, at::kCUDA, at::kFloat),
                AnyOf(HasSubstr("no CUDA attention kernels"), HasSubstr("fp16 or bf16, not Float")));
}

}  // namespace
}  // namespace sparsereel::attention
