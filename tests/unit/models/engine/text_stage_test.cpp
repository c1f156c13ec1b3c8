// Tests which tokens pass through the text encoder, and how its output is padded.
#include "models/engine/text_stage.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

/// A text encoder with two channels: the number of tokens that were encoded together, and the token's id.
class CountingEncoder final : public TextEncoder {
 public:
  at::Tensor forward(const at::Tensor& ids) const override {
    batches.push_back(ids.size(0));
    const at::Tensor tokens = ids.to(at::kFloat);
    return at::stack({at::full_like(tokens, static_cast<double>(ids.size(1))), tokens}, 2);
  }
  int64_t vocab_size() const override { return 100; }
  uint64_t weight_bytes() const override { return 0; }

  mutable std::vector<int64_t> batches;
};

const std::vector<TokenIds> kPrompts = {{.ids = {7, 1, 0, 0}, .token_count = 2},
                                        {.ids = {5, 6, 1, 0}, .token_count = 3}};

std::pair<at::Tensor, std::vector<int64_t>> encoded(const TextEncoder& encoder, const std::vector<TokenIds>& prompts,
                                                    const PromptRules& rules) {
  Conditioning conditioning = encode_prompts(encoder, prompts, rules);
  return {conditioning.text, conditioning.text_lengths};
}

at::Tensor channel(const at::Tensor& text, int64_t index) {
  return text.select(2, index);
}

TEST(EncodePrompts, EncodesPaddedPromptsInOneBatch) {
  const CountingEncoder encoder;
  const auto [text, lengths] = encoded(encoder, kPrompts, {.encodes_padding = true});
  EXPECT_THAT(encoder.batches, ElementsAre(2));
  EXPECT_THAT(lengths, ElementsAre(2, 3));
  EXPECT_TRUE(channel(text, 0).equal(at::full({2, 4}, 4.0)));
  EXPECT_TRUE(channel(text, 1).equal(at::tensor({7, 1, 0, 0, 5, 6, 1, 0}, at::kFloat).view({2, 4})));
}

TEST(EncodePrompts, PadsEachEncodedPromptWithZeros) {
  const CountingEncoder encoder;
  const auto [text, lengths] = encoded(encoder, kPrompts, {.encodes_padding = false});
  EXPECT_THAT(encoder.batches, ElementsAre(1, 1));
  EXPECT_THAT(lengths, ElementsAre(2, 3));
  EXPECT_TRUE(channel(text, 0).equal(at::tensor({2, 2, 0, 0, 3, 3, 3, 0}, at::kFloat).view({2, 4})));
  EXPECT_TRUE(channel(text, 1).equal(at::tensor({7, 1, 0, 0, 5, 6, 1, 0}, at::kFloat).view({2, 4})));
}

TEST(EncodePrompts, ReturnsZerosForAPromptWithoutTokens) {
  const CountingEncoder encoder;
  const auto [text, lengths] =
      encoded(encoder, {{.ids = {1, 0, 0, 0}, .token_count = 0}, kPrompts[1]}, {.encodes_padding = false});
  EXPECT_THAT(lengths, ElementsAre(0, 3));
  EXPECT_TRUE(text[0].equal(at::zeros({4, 2})));
  EXPECT_TRUE(channel(text, 1)[1].equal(at::tensor({5, 6, 1, 0}, at::kFloat)));
}

}  // namespace
}  // namespace sparsereel::models
