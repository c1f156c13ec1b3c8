// Tests that reading a file of captured q, k and v gives the tensors that were written, and that errors name the fault.
#include "app/lab/measure/captured.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/lab/bench/options.h"
#include "app/tensor_file.h"
#include "tests/support/capture_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using test::TemporaryFolder;
using test::throws_error;
using ::testing::ElementsAre;

/// Returns two attention calls with 2 x 2 x 3 video tokens and one text token. The values of q are 0, 1, 2 and so on.
Capture capture() {
  Capture result{.grid = {.frames = 2, .height = 2, .width = 3}, .text_tokens = 1, .calls = {}};
  for (const int64_t layer : {0, 7}) {
    const at::Tensor q = at::arange(13, at::kFloat).view({1, 13, 1, 1}).expand({1, 13, 2, 16}) + layer;
    result.calls.push_back({.step = 3, .layer = layer, .q = q, .k = -q, .v = q / 2});
  }
  return result;
}

TEST(Capture, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  write_capture(folder / "a.safetensors", capture(), {{"model", "tiny"}});
  const Capture read = read_capture(folder / "a.safetensors");
  EXPECT_EQ(read.grid, capture().grid);
  EXPECT_EQ(read.text_tokens, 1);
  ASSERT_EQ(read.calls.size(), 2U);
  EXPECT_EQ(read.calls[1].step, 3);
  EXPECT_EQ(read.calls[1].layer, 7);
  EXPECT_EQ(read.calls[1].k.scalar_type(), at::kHalf);
  EXPECT_TRUE(at::equal(read.calls[1].k.to(at::kFloat), capture().calls[1].k));
}

TEST(Capture, KeepsTextLastInEveryTokenOrder) {
  const Capture one = capture();
  for (const auto order :
       {hilbert::TokenOrder::hilbert, hilbert::TokenOrder::native, hilbert::TokenOrder::time_major}) {
    const at::Tensor places = places_in(order, one);
    EXPECT_EQ(places[12].item<int64_t>(), 12);
    EXPECT_TRUE(at::equal(std::get<0>(places.sort()), at::arange(13)));
  }
  // Token 1 in this order is the first token of frame 1.
  EXPECT_EQ(places_in(hilbert::TokenOrder::time_major, one)[1].item<int64_t>(), 6);
}

TEST(Capture, NamesTheTensorThatIsWrong) {
  const TemporaryFolder folder;
  const auto file = folder / "a.safetensors";
  Capture wrong = capture();
  wrong.grid.width = 4;
  write_capture(file, wrong, {});
  EXPECT_TRUE(throws_error([&] { read_capture(file); }, {"a.safetensors", "13 tokens", "17"}));
  wrong = capture();
  wrong.calls[1].v = wrong.calls[1].v.narrow(1, 0, 12);
  write_capture(file, wrong, {});
  EXPECT_TRUE(throws_error([&] { read_capture(file); }, {"a.safetensors", "differ in shape"}));
  write_capture(file, {.grid = {.frames = 1, .height = 1, .width = 1}, .text_tokens = 0, .calls = {}}, {});
  EXPECT_TRUE(throws_error([&] { read_capture(file); }, {"a.safetensors", "calls"}));
  models::write_safetensors(file, {}, {{"frames", "2"}, {"height", "x"}});
  EXPECT_TRUE(throws_error([&] { read_capture(file); }, {"a.safetensors", "height is 'x'"}));
  const std::map<std::string, std::string> metadata = {
      {"frames", "1"}, {"height", "1"}, {"width", "1"}, {"text_tokens", "0"}, {"calls", "0/1"}};
  models::write_safetensors(file, {}, metadata);
  EXPECT_TRUE(throws_error([&] { read_capture(file); }, {"a.safetensors", "no tensor step0.layer1.q"}));
  const at::Tensor floats = at::zeros({1, 1, 1, 16});
  models::write_safetensors(file, {view_of("step0.layer1.q", floats)}, metadata);
  EXPECT_TRUE(throws_error([&] { read_capture(file); }, {"step0.layer1.q", "not an fp16 tensor"}));
  wrong = capture();
  wrong.calls[0].q = wrong.calls[0].q * 1e6;
  EXPECT_TRUE(throws_error([&] { write_capture(file, wrong, {}); }, {"step3.layer0.q", "fp16"}));
}

TEST(CapturedPlan, NeedsNoShapeAndAcceptsTokenOrders) {
  AttentionOptions options;
  options.captured = "a.safetensors";
  EXPECT_THAT(make_plan(options).orders, ElementsAre(hilbert::TokenOrder::hilbert));
  EXPECT_TRUE(make_plan(options).workloads.empty());
  options.token_orders = "native,hilbert";
  EXPECT_THAT(make_plan(options).orders, ElementsAre(hilbert::TokenOrder::native, hilbert::TokenOrder::hilbert));
}

TEST(CapturedPlan, WarnsOfOptionsWithoutEffect) {
  const auto warned = [](const AttentionOptions& options, const std::string& option) {
    const std::vector<std::string> warnings = make_plan(options).warnings;
    return warnings.size() == 1 && warnings.front().starts_with(option + " has no effect");
  };
  AttentionOptions shape;
  shape.shapes = {"1,1,64,64"};
  shape.token_orders = "native";
  EXPECT_TRUE(warned(shape, "--token-order"));
  AttentionOptions options;
  options.captured = "a.safetensors";
  options.text_tokens = "3";
  EXPECT_TRUE(warned(options, "--text-tokens"));
  options.text_tokens.reset();
  options.data = "smooth";
  EXPECT_TRUE(warned(options, "--data"));
  options.data.reset();
  options.causal = true;
  EXPECT_TRUE(warned(options, "--causal"));
  options.shapes = {"1,1,64,64"};
  EXPECT_TRUE(make_plan(options).warnings.empty());
}

}  // namespace
}  // namespace sparsereel::app::bench
