// Tests to which token and channel patchify() moves an element of the latents, and that unpatchify() moves it back, in
// native and Hilbert order.
#include "models/transformer/patches.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

TokenPlan plan_of(const hilbert::Grid& grid, hilbert::TokenOrder order) {
  return make_token_plan({}, grid, order, at::kFloat);
}

TEST(Patches, OrderElementsByChannelFrameRowAndColumn) {
  const c10::InferenceMode inference;
  const at::Tensor latents = at::arange(1 * 4 * 3 * 6 * 8, at::kFloat).view({1, 4, 3, 6, 8});
  const at::Tensor patches = patchify(latents, {.frames = 2}, plan_of({2, 3, 4}, hilbert::TokenOrder::native));
  ASSERT_EQ(patches.sizes(), at::IntArrayRef({1, 2 * 3 * 4, 3 * 2 * 2 * 2}));
  const int64_t token = (1 * 3 + 2) * 4 + 3;              // frames 2-3, rows 4-5, columns 6-7
  const int64_t element = ((2 * 2 + 1) * 2 + 1) * 2 + 0;  // channel 2, second frame, second row, first column
  EXPECT_EQ(patches[0][token][element].item<float>(), latents[0][3][2][5][6].item<float>());
}

TEST(Patches, FollowTheTokenOrderOfThePlan) {
  const c10::InferenceMode inference;
  const at::Tensor latents = at::randn({2, 2, 3, 6, 8});
  const TokenPlan curved = plan_of({2, 3, 4}, hilbert::TokenOrder::hilbert);
  const at::Tensor native = patchify(latents, {}, plan_of({2, 3, 4}, hilbert::TokenOrder::native));
  EXPECT_TRUE(patchify(latents, {}, curved).equal(native.index_select(1, curved.order)));
}

TEST(Patches, ConvertBackToTheSameLatents) {
  const c10::InferenceMode inference;
  const at::Tensor latents = at::randn({2, 4, 3, 6, 8});
  for (const auto order : {hilbert::TokenOrder::native, hilbert::TokenOrder::hilbert}) {
    for (const PatchSize& patch : {PatchSize{}, PatchSize{.frames = 2, .height = 1, .width = 4}}) {
      const TokenPlan plan = plan_of({4 / patch.frames, 6 / patch.height, 8 / patch.width}, order);
      EXPECT_TRUE(unpatchify(patchify(latents, patch, plan), patch, plan).equal(latents)) << patch.frames;
    }
  }
}

TEST(Patches, ConvertBackFromChannelsLastAndOmitExtraChannels) {
  const c10::InferenceMode inference;
  constexpr int64_t kChannels = 3, kAll = 5;
  const at::Tensor latents = at::randn({2, kChannels, 4, 6, 8});
  const PatchSize patch = {.frames = 2};
  const TokenPlan plan = plan_of({2, 3, 4}, hilbert::TokenOrder::hilbert);
  const at::Tensor first = patchify(latents.transpose(1, 2), patch, plan).unflatten(2, {kChannels, -1});
  const at::Tensor rest = at::randn({2, first.size(1), kAll - kChannels, first.size(3)});
  const at::Tensor patches = at::cat({first, rest}, 2).transpose(2, 3).flatten(2);
  const at::Tensor back = unpatchify_channels_last(patches, kAll, kChannels, patch, plan);
  EXPECT_TRUE(back.equal(latents));
  EXPECT_TRUE(back.is_contiguous());
}

TEST(Patches, AreKnownIfAnyOfTheirLatentsIs) {
  const c10::InferenceMode inference;
  const at::Tensor mask = at::ones({1, 4, 1, 1, 1});
  mask.select(1, 1).zero_();  // frame 1, the second frame of the first patches, is unknown
  const TokenPlan plan = plan_of({2, 3, 4}, hilbert::TokenOrder::hilbert);
  const at::Tensor known = known_tokens(mask, {.frames = 2}, plan);
  ASSERT_EQ(known.sizes(), at::IntArrayRef({2 * 3 * 4}));
  EXPECT_TRUE(known.equal(plan.order.lt(3 * 4).to(at::kLong)));
}

}  // namespace
}  // namespace sparsereel::models
