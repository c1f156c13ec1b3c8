// Tests the token plan: the order of the tokens, and the sizes that are refused.
#include "models/families/cogvideox/tokens.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using test::close_to;

CogVideoXConfig small_config() {
  CogVideoXConfig config;
  config.num_attention_heads = 2;
  config.attention_head_dim = 16;
  config.in_channels = config.out_channels = 3;
  config.sample_width = 12;
  config.sample_height = 8;
  config.sample_frames = 9;
  config.max_text_seq_length = 5;
  return config;
}

TokenPlan plan_of(const CogVideoXConfig& config, const at::Tensor& learned, const hilbert::Grid& grid,
                  hilbert::TokenOrder order, at::TensorOptions options) {
  return make_token_plan(cogvideox_tables(config, "config.json", learned, grid), grid, order, options);
}

TEST(TokenPlan, PermutesAllTablesInTheSameOrder) {
  CogVideoXConfig config = small_config();
  config.use_rotary_positional_embeddings = true;
  config.use_learned_positional_embeddings = true;
  const hilbert::Grid grid{3, 4, 6};
  const at::Tensor learned = at::randn({1, 5 + grid.size(), 32});
  const TokenPlan native = plan_of(config, learned, grid, hilbert::TokenOrder::native, at::kFloat);
  const TokenPlan curved = plan_of(config, learned, grid, hilbert::TokenOrder::hilbert, at::kFloat);
  EXPECT_FALSE(native.order.defined());
  EXPECT_TRUE(native.video_positions.equal(learned[0].slice(0, 5)));
  EXPECT_TRUE(curved.video_positions.index_select(0, curved.inverse).equal(native.video_positions));
  EXPECT_TRUE(curved.rotary.cos.index_select(0, curved.inverse).equal(native.rotary.cos));
  EXPECT_TRUE(curved.rotary.sin.index_select(0, curved.inverse).equal(native.rotary.sin));
  EXPECT_TRUE(curved.text_positions.equal(learned[0].slice(0, 0, 5)));
  EXPECT_TRUE(curved.order.index_select(0, curved.inverse).equal(at::arange(grid.size())));
  EXPECT_FALSE(curved.order.equal(at::arange(grid.size())));
}

TEST(TokenPlan, KeepsRotaryTablesInFp32AndPositionsInTheModelsDtype) {
  CogVideoXConfig config = small_config();
  const TokenPlan added = plan_of(config, {}, {3, 4, 6}, hilbert::TokenOrder::hilbert, at::kBFloat16);
  EXPECT_EQ(added.video_positions.scalar_type(), at::kBFloat16);
  EXPECT_FALSE(added.rotary.cos.defined());
  config.use_rotary_positional_embeddings = true;
  const TokenPlan turned = plan_of(config, {}, {3, 4, 6}, hilbert::TokenOrder::hilbert, at::kBFloat16);
  EXPECT_EQ(turned.rotary.cos.scalar_type(), at::kFloat);
  EXPECT_FALSE(turned.video_positions.defined());
}

std::string cause_of(const CogVideoXConfig& config, const at::Tensor& learned, const hilbert::Grid& grid) {
  try {
    cogvideox_tables(config, "folder/config.json", learned, grid);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  return "";
}

TEST(TokenPlan, RefusesOtherSizesWithLearnedPositions) {
  CogVideoXConfig config = small_config();
  config.use_rotary_positional_embeddings = config.use_learned_positional_embeddings = true;
  const at::Tensor learned = at::zeros({1, 5 + 72, 32});
  const std::string cause = cause_of(config, learned, {3, 6, 6});
  EXPECT_NE(cause.find("folder/config.json"), std::string::npos);
  EXPECT_NE(cause.find("use_learned_positional_embeddings"), std::string::npos);
  EXPECT_EQ(cause_of(config, learned, {2, 4, 6}),
            "");  // accepted: other frame counts use computed positions, as in the reference
}

TEST(TokenPlan, RefusesGridsLargerThanTheSampleSizeIfPatchesSpanFrames) {
  CogVideoXConfig config = small_config();
  config.use_rotary_positional_embeddings = true;
  config.patch_size_t = 2;
  EXPECT_NE(cause_of(config, {}, {2, 5, 6}).find("sample_height"), std::string::npos);
  EXPECT_EQ(cause_of(config, {}, {9, 4, 6}), "");
}

}  // namespace
}  // namespace sparsereel::models
