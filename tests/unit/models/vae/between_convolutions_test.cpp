// Compares a VAE's downsampling of frames with torch's convolution of padded frames.
#include "models/vae/between_convolutions.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

TEST(DownsamplePixels, PadsEachFrameWithZerosAtTheEnd) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::randn({3, 6, 10, 4}), weight = at::randn({5, 4, 3, 3}), bias = at::randn({5});
  const at::Tensor padded = at::constant_pad_nd(x.permute({0, 3, 1, 2}), {0, 1, 0, 1});
  EXPECT_TRUE(test::close_to(downsample_pixels(x, weight.contiguous(at::MemoryFormat::ChannelsLast), bias),
                             at::conv2d(padded, weight, bias, 2).permute({0, 2, 3, 1}), 1e-6));
}

}  // namespace
}  // namespace sparsereel::models
