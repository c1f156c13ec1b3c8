// Tests that fp32 numbers are rounded to the nearest number in fp16 or bf16.
#include "attention/core/elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace sparsereel::attention {
namespace {

TEST(AttentionElements, FP16RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const float x = float_of_half(low);
    ASSERT_EQ(fp16_of_float(x), low);
    ASSERT_EQ(fp16_of_float(-x), low | 0x8000);
    const float next = high == 0x7C00 ? 65536.0F : float_of_half(high), middle = (x + next) / 2;
    ASSERT_GT(next, x);
    ASSERT_EQ(fp16_of_float(middle), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(fp16_of_float(std::nextafter(middle, 0.0F)), low) << bits;
    ASSERT_EQ(fp16_of_float(std::nextafter(middle, 1e9F)), high) << bits;
  }
  EXPECT_EQ(float_of_half(0x3C00), 1.0F);
  EXPECT_EQ(float_of_half(0x0001), 0x1p-24F);
  EXPECT_EQ(float_of_half(0xFC00), -INFINITY);
  EXPECT_EQ(fp16_of_float(INFINITY), 0x7C00);
  EXPECT_TRUE(std::isnan(float_of_half(fp16_of_float(NAN))));
}

TEST(AttentionElements, BF16RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const float x = float_of_bf16(low), middle = std::bit_cast<float>((bits << 16) + 0x8000);
    ASSERT_EQ(bf16_of_float(x), low);
    ASSERT_EQ(bf16_of_float(middle), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(bf16_of_float(std::nextafter(middle, 0.0F)), low) << bits;
  }
  EXPECT_EQ(float_of_bf16(0xBF80), -1.0F);
  EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of_float(NAN))));
}

}  // namespace
}  // namespace sparsereel::attention
