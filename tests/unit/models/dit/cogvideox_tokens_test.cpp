// Patches and the token plan: round trips, the run's order, and the sizes that are refused.
#include "models/dit/cogvideox_tokens.h"

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

TEST(Patches, HoldChannelsSlowestThenFramesRowsColumns) {
  CogVideoXConfig config = small_config();
  config.patch_size_t = 2;
  const at::Tensor latents = at::arange(1 * 4 * 3 * 6 * 8, at::kFloat).view({1, 4, 3, 6, 8});
  const at::Tensor patches = patchify(latents, config);
  ASSERT_EQ(patches.sizes(), at::IntArrayRef({1, 2 * 3 * 4, 3 * 2 * 2 * 2}));
  const int64_t token = (1 * 3 + 2) * 4 + 3;              // frames 2-3, rows 4-5, columns 6-7
  const int64_t element = ((2 * 2 + 1) * 2 + 1) * 2 + 0;  // channel 2, second frame, second row, first column
  EXPECT_EQ(patches[0][token][element].item<float>(), latents[0][3][2][5][6].item<float>());
}

TEST(Patches, ComeBackAsTheyWere) {
  for (const int64_t depth : {1, 2}) {
    CogVideoXConfig config = small_config();
    if (depth > 1) config.patch_size_t = depth;
    const at::Tensor latents = at::randn({2, 4, 3, 6, 8});
    EXPECT_TRUE(unpatchify(patchify(latents, config), config, latents.sizes()).equal(latents)) << depth;
  }
}

TokenPlan plan_of(const CogVideoXConfig& config, const at::Tensor& learned, const hilbert::Grid& grid,
                  hilbert::TokenOrder order, at::TensorOptions options) {
  return make_token_plan(cogvideox_tables(config, "config.json", learned, grid), grid, order, options);
}

TEST(TokenPlan, PermutesEveryTableAlike) {
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
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  return "";
}

TEST(TokenPlan, RefusesLearnedPositionsOffTheSampleSize) {
  CogVideoXConfig config = small_config();
  config.use_rotary_positional_embeddings = config.use_learned_positional_embeddings = true;
  const at::Tensor learned = at::zeros({1, 5 + 72, 32});
  const std::string cause = cause_of(config, learned, {3, 6, 6});
  EXPECT_NE(cause.find("folder/config.json"), std::string::npos);
  EXPECT_NE(cause.find("use_learned_positional_embeddings"), std::string::npos);
  EXPECT_EQ(cause_of(config, learned, {2, 4, 6}),
            "");  // other frames fall back to computed positions, as the reference does
}

TEST(TokenPlan, RefusesGridsBeyondTheSampleSizeWherePatchesSpanFrames) {
  CogVideoXConfig config = small_config();
  config.use_rotary_positional_embeddings = true;
  config.patch_size_t = 2;
  EXPECT_NE(cause_of(config, {}, {2, 5, 6}).find("sample_height"), std::string::npos);
  EXPECT_EQ(cause_of(config, {}, {9, 4, 6}), "");
}

}  // namespace
}  // namespace sparsereel::models
