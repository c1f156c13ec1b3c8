// Tests the contract of the forward pass: shapes, dtypes, token grid, and inputs that are refused. tests/parity checks
// its values.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/families/cogvideox/loaders.h"
#include "models/request/attention_run.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {
namespace {

// Uses the small pipeline of the parity tests with its random weights in fp16. It has patches of 2 x 2, 4 channels,
// text_embed_dim 32 and rotary positions.
class CogVideoXForward : public ::testing::Test {
 protected:
  CogVideoXForward() {
    transformer_ = load_cogvideox_transformer(
        Checkpoint::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline").component("transformer"), at::kCPU,
        at::kFloat);
  }

  at::Tensor forward(const at::Tensor& latents, const at::Tensor& text, const at::Tensor& timesteps) {
    return transformer_->forward(latents, {text}, timesteps, run_);
  }

  std::string cause_of(const at::Tensor& latents, const at::Tensor& text, const at::Tensor& timesteps) {
    try {
      forward(latents, text, timesteps);
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    return "";
  }

  c10::InferenceMode inference_;
  std::unique_ptr<LoadedTransformer> transformer_;
  AttentionRun run_;
  at::Tensor times_ = at::tensor(std::vector<int64_t>{500, 500});
};

TEST_F(CogVideoXForward, ReturnsTheLatentsShapeAndDtype) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor latents = at::randn({2, 3, 4, 8, 6}, dtype);
    const at::Tensor prediction = forward(latents, at::randn({2, 7, 32}, dtype), times_);
    EXPECT_EQ(prediction.sizes(), latents.sizes());
    EXPECT_EQ(prediction.scalar_type(), dtype);
    EXPECT_TRUE(at::isfinite(prediction).all().item<bool>());
  }
}

TEST_F(CogVideoXForward, DoesNotModifyItsInputs) {
  const at::Tensor latents = at::randn({2, 3, 4, 8, 6}), text = at::randn({2, 7, 32}), latents_before = latents.clone(),
                   text_before = text.clone();
  forward(latents, text, times_);
  EXPECT_TRUE(latents.equal(latents_before));
  EXPECT_TRUE(text.equal(text_before));
}

TEST_F(CogVideoXForward, ProcessesBatchEntriesIndependently) {
  const at::Tensor latents = at::randn({2, 3, 4, 8, 6}), text = at::randn({2, 7, 32}),
                   times = at::tensor(std::vector<int64_t>{900, 20});
  const at::Tensor both = forward(latents, text, times);
  for (int64_t i = 0; i < 2; ++i) {
    const at::Tensor alone = forward(latents.narrow(0, i, 1), text.narrow(0, i, 1), times.narrow(0, i, 1));
    EXPECT_LT((alone - both.narrow(0, i, 1)).abs().max().item<double>(), 1e-5 * both.abs().max().item<double>());
  }
}

TEST_F(CogVideoXForward, ReusesTheRightTablesForAlternatingSizesAndOrders) {
  const at::Tensor a = at::randn({2, 3, 4, 8, 6}), b = at::randn({2, 2, 4, 4, 10}), text = at::randn({2, 7, 32});
  run_.token_order = hilbert::TokenOrder::hilbert;
  const at::Tensor first = forward(a, text, times_);
  forward(b, text, times_);
  run_.token_order = hilbert::TokenOrder::native;
  const at::Tensor native = forward(a, text, times_);
  run_.token_order = hilbert::TokenOrder::hilbert;
  EXPECT_TRUE(forward(a, text, times_).equal(first));
  EXPECT_LT((first - native).abs().max().item<double>(), 1e-5 * native.abs().max().item<double>());
}

TEST_F(CogVideoXForward, ReportsEachAttentionCall) {
  const at::Tensor latents = at::randn({2, 3, 4, 8, 6}), text = at::randn({2, 7, 32});
  const at::Tensor unwatched = forward(latents, text, times_);
  std::vector<int64_t> layers;
  run_.watcher = [&](const AttentionCall& call) {
    layers.push_back(call.layer);
    EXPECT_EQ(call.grid, (hilbert::Grid{3, 4, 3}));
    EXPECT_EQ(call.context.text_tokens, 7);
    EXPECT_EQ(call.q.size(0), 2);
    EXPECT_EQ(call.q.size(1), call.grid.size() + 7);
    EXPECT_EQ(call.k.sizes(), call.q.sizes());
    EXPECT_EQ(call.v.sizes(), call.q.sizes());
  };
  EXPECT_TRUE(forward(latents, text, times_).equal(unwatched));
  EXPECT_EQ(layers.size(), run_.per_layer.size());
  for (size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(layers[i], static_cast<int64_t>(i));
}

TEST_F(CogVideoXForward, RefusesMisshapedInputs) {
  const at::Tensor latents = at::zeros({2, 3, 4, 8, 6}), text = at::zeros({2, 7, 32});
  EXPECT_NE(cause_of(at::zeros({2, 3, 5, 8, 6}), text, times_).find("latents of shape [2, 3, 5, 8, 6]"),
            std::string::npos);
  EXPECT_NE(cause_of(at::zeros({2, 3, 4, 7, 6}), text, times_), "");
  EXPECT_NE(cause_of(at::zeros({2, 3, 4, 8}), text, times_), "");
  EXPECT_NE(cause_of(at::zeros({2, 0, 4, 8, 6}), text, times_), "");
  EXPECT_NE(cause_of(latents, at::zeros({2, 7, 31}), times_).find("text_embed_dim"), std::string::npos);
  EXPECT_NE(cause_of(latents, at::zeros({1, 7, 32}), times_), "");
  EXPECT_NE(cause_of(latents, text, times_.narrow(0, 0, 1)).find("timesteps"), std::string::npos);
  EXPECT_EQ(cause_of(latents, text, times_), "");
}

}  // namespace
}  // namespace sparsereel::models
