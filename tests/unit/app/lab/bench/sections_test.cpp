// Tests how the time of a call is divided into matrix products outside attention, attention as a whole, and the rest.
// Also tests that no trace stays active after the measurement.
#include "app/lab/bench/sections.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "attention/attention.h"
#include "models/layers/int8.h"
#include "models/layers/linear.h"

namespace sparsereel::app::bench {
namespace {

void wait(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));  // the time that the test measures
}

/// Runs `call` as a transformer runs attention: notifies the watcher before it, and calls `attended` after it.
void attend(const models::AttentionRun& run, const std::function<void()>& call) {
  const at::Tensor none;
  const attention::Context context;
  const hilbert::Grid grid;
  if (run.watcher) run.watcher({.q = none, .k = none, .v = none, .context = context, .grid = grid});
  call();
  if (run.attended) run.attended();
}

TEST(Sections, AddUpToTheWholeCall) {
  const at::Tensor a = at::randn({300, 300});
  models::AttentionRun run;
  const auto start = std::chrono::steady_clock::now();
  const Split split = measure_split(at::kCPU, run, [&] {
    at::linear(a, a);
    attend(run, [&] {
      at::matmul(a, a);
      wait(40);
    });
    wait(20);
  });
  const double all = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(split.matmul, 0);
  EXPECT_GE(split.attention, 40);
  EXPECT_GE(split.rest, 20);
  EXPECT_LE(split.matmul + split.attention + split.rest, all);
}

TEST(Sections, CountsOurOwnProductsInInt8AsMatrixProducts) {
  const models::Int8Rows rows = models::quantize_int8_weight(at::randn({300, 300}));
  models::Linear layer = {.weight = rows.values.view(-1).view(at::kByte), .scale = rows.scale};
  layer.rows = {{models::Dtype::i8, 300, 300, 0}};
  layer.rows[0].rotation = rows.rotation;
  layer.rows[0].multiplies = true;
  const at::Tensor x = at::randn({300, 300});
  models::AttentionRun run;
  const Split split = measure_split(at::kCPU, run, [&] { models::linear(x, layer); });
  EXPECT_GT(split.matmul, split.rest);
}

TEST(Sections, CountsMatrixProductsInsideAttentionAsAttention) {
  const at::Tensor a = at::randn({300, 300});
  models::AttentionRun run;
  const Split split = measure_split(at::kCPU, run, [&] { attend(run, [&] { at::matmul(a, a); }); });
  EXPECT_EQ(split.matmul, 0);
  EXPECT_GT(split.attention, 0);
}

TEST(Parts, ScaleTheMeanSharesOfProfiledCallsToTheMeasuredTime) {
  const std::vector<Split> calls = {{.matmul = 62.8, .attention = 15.9, .rest = 7.3},
                                    {.matmul = 30, .attention = 0, .rest = 10}};
  const Split parts = parts_of(66.9, calls);
  EXPECT_NEAR(parts.total(), 66.9, 1e-9);
  EXPECT_NEAR(parts.attention, 66.9 * 15.9 / 86 / 2, 1e-9);
  EXPECT_NEAR(parts.matmul, 66.9 * (62.8 / 86 + 0.75) / 2, 1e-9);
}

TEST(Sections, RemoveTheirHooksIfTheCallThrows) {
  models::AttentionRun run;
  EXPECT_THROW(measure_split(at::kCPU, run, [] { throw 1; }), int);
  EXPECT_FALSE(run.watcher);
  EXPECT_FALSE(run.attended);
  const at::Tensor a = at::ones({2, 2});
  EXPECT_EQ(at::matmul(a, a)[0][0].item<float>(), 2);
}

}  // namespace
}  // namespace sparsereel::app::bench
