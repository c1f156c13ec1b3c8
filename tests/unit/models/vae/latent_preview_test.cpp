// Tests the colors of a preview: the linear map from latents to colors, its rounding and its limits, for both layouts
// of latents.
#include "models/vae/latent_preview.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "hilbert/error.h"
#include "models/engine/components.h"

namespace sparsereel::models {
namespace {

constexpr std::array<LinearColor, 2> kChannels = {{{0.5F, 0, -1}, {0, 0.25F, 1}}};
constexpr LatentColors kColors = {.channels = kChannels, .constant = {0, -0.5F, 0.5F}};

/// Returns latents [1, 2, 2, 1, 2] with the values 0, 0.5, 1, 1.5 and so on.
at::Tensor counting() {
  return at::arange(8, at::kFloat).mul(0.5).view({1, 2, 2, 1, 2});
}

TEST(LatentPreview, MapsChannelsToColors) {
  const at::Tensor drawn = LatentPreview(kColors, LatentLayout::channels_first).draw(counting());
  EXPECT_EQ(drawn.scalar_type(), at::kByte);
  const at::Tensor x = counting()[0][0], y = counting()[0][1];
  const at::Tensor colors = at::stack({x * 0.5, y * 0.25 - 0.5, y - x + 0.5}, -1);
  const at::Tensor expected = ((colors + 1) * 127.5).round().clamp(0, 255).to(at::kByte);
  EXPECT_TRUE(drawn.equal(expected)) << drawn << expected;
}

TEST(LatentPreview, ReadsBothLayoutsAndAllDtypes) {
  const at::Tensor drawn = LatentPreview(kColors, LatentLayout::channels_first).draw(counting());
  const LatentPreview other(kColors, LatentLayout::frames_first);
  EXPECT_TRUE(other.draw(counting().transpose(1, 2)).equal(drawn)) << "a view";
  EXPECT_TRUE(other.draw(counting().transpose(1, 2).contiguous().to(at::kBFloat16)).equal(drawn));
  EXPECT_TRUE(drawn.is_contiguous());
}

TEST(LatentPreview, DrawsNanBlackAndClampsTheRest) {
  at::Tensor latents = at::full({1, 2, 1, 1, 2}, 1e30);
  latents[0][1] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor drawn = LatentPreview(kColors, LatentLayout::channels_first).draw(latents).view({2, 3});
  EXPECT_EQ(drawn[0].sum().item<int>(), 0);
  latents[0][1] = 0;
  const at::Tensor clamped = LatentPreview(kColors, LatentLayout::channels_first).draw(latents).view({2, 3});
  EXPECT_EQ(clamped[0][0].item<int>(), 255);
  EXPECT_EQ(clamped[0][2].item<int>(), 0);
}

TEST(LatentPreview, RefusesOtherChannels) {
  const LatentPreview preview(kColors, LatentLayout::channels_first);
  EXPECT_THROW(preview.draw(at::zeros({1, 3, 2, 1, 2})), Error);
  EXPECT_THROW(preview.draw(at::zeros({2, 2, 1, 2})), Error);
}

/// Returns the mean color of a preview of zero latents, or nullopt if the family has no map to colors.
std::optional<at::Tensor> color_of_zeros(const std::string& family, int64_t channels) {
  ModelSpec spec;
  spec.latent_channels = channels;
  spec.layout = LatentLayout::channels_first;
  const auto preview = latent_preview(family, spec);
  if (!preview) return std::nullopt;
  return preview->draw(at::zeros({1, channels, 1, 2, 2}))[0][0][0];
}

TEST(LatentPreview, KnowsPublishedFamilies) {
  EXPECT_TRUE(color_of_zeros("Wan", 16)->equal(at::tensor({93, 98, 69}, at::kByte)));
  EXPECT_TRUE(color_of_zeros("Wan", 48)->equal(at::tensor({129, 115, 118}, at::kByte)));
  EXPECT_TRUE(color_of_zeros("Mochi", 12)->equal(at::tensor({116, 109, 109}, at::kByte)));
  EXPECT_TRUE(color_of_zeros("CogVideoX", 8)) << "the tiny model";
  EXPECT_FALSE(color_of_zeros("CogVideoX", 16));
  EXPECT_FALSE(color_of_zeros("Wan", 17));
  EXPECT_FALSE(color_of_zeros("Open-Sora-Plan", 4));
}

}  // namespace
}  // namespace sparsereel::models
