// The rows of padding at a text's end are all equal, so a few rows with larger weights can replace them. Tests that
// cross-attention then gives the same result.
#include "models/transformer/text_padding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "attention/attention.h"

namespace sparsereel::models {
namespace {

// Returns texts [lengths.size(), rows, 8] of random numbers. Text b is zero from row lengths[b] on.
at::Tensor padded_text(const std::vector<int64_t>& lengths, int64_t rows) {
  at::manual_seed(2);
  at::Tensor text = at::randn({static_cast<int64_t>(lengths.size()), rows, 8});
  for (size_t b = 0; b < lengths.size(); ++b)
    text[static_cast<int64_t>(b)].narrow(0, lengths[b], rows - lengths[b]).zero_();
  return text;
}

// Computes attention whose keys and values are projections of `rows`. The projection adds 0.5, like the bias of a
// layer, so the keys and values of padding are equal but not zero.
at::Tensor attended(const at::Tensor& rows, const at::Tensor& bias) {
  at::manual_seed(3);
  const at::Tensor q = at::randn({rows.size(0), 5, 2, 16}), to_k = at::randn({8, 32}), to_v = at::randn({8, 32});
  const auto project = [&](const at::Tensor& weight) { return (at::matmul(rows, weight) + 0.5).unflatten(2, {2, 16}); };
  attention::Workspace workspace;
  return attention::attend(q, project(to_k), project(to_v), {.key_bias = bias}, workspace).out;
}

void expect_same_attention(const at::Tensor& text, const std::vector<int64_t>& lengths, int64_t kept) {
  const FoldedText folded = fold_padding(text, lengths);
  ASSERT_EQ(folded.rows.sizes(), at::IntArrayRef({text.size(0), kept, text.size(2)}));
  ASSERT_TRUE(folded.bias.defined());
  EXPECT_LT((attended(folded.rows, folded.bias) - attended(text, {})).abs().max().item<double>(), 1e-4);
}

TEST(FoldPadding, KeepsTwoRowsOfPadding) {
  expect_same_attention(padded_text({7}, 64), {7}, 9);
}

TEST(FoldPadding, KeepsEnoughRowsForTheLongestText) {
  expect_same_attention(padded_text({3, 20, 0}, 64), {3, 20, 0}, 22);
}

TEST(FoldPadding, AcceptsATextWithoutTokens) {
  expect_same_attention(padded_text({0}, 16), {0}, 2);
}

TEST(FoldPadding, KeepsATextOfUnknownLength) {
  const at::Tensor text = padded_text({9}, 64);
  const FoldedText folded = fold_padding(text, {});
  EXPECT_TRUE(folded.rows.equal(text));
  EXPECT_FALSE(folded.bias.defined());
}

TEST(FoldPadding, HasTheSameWeightInBf16) {
  for (const int64_t length : {0, 1, 77, 300, 400}) {
    const at::Tensor bias = fold_padding(padded_text({length}, 1000), {length}).bias.to(at::kBFloat16).to(at::kDouble);
    EXPECT_NEAR(bias.narrow(1, length, 2).exp().sum().item<double>() / static_cast<double>(1000 - length), 1, 1e-3);
  }
}

TEST(FoldPadding, KeepsATextWithLittlePadding) {
  for (const int64_t longest : {40, 64}) {
    const at::Tensor text = padded_text({3, longest}, 64);
    const FoldedText folded = fold_padding(text, {3, longest});
    EXPECT_TRUE(folded.rows.equal(text));
    EXPECT_FALSE(folded.bias.defined());
  }
}

}  // namespace
}  // namespace sparsereel::models
