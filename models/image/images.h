// The pictures that a video is made from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

/// Pictures that a video begins and ends with: fp32 [H, W, 3] in 0..1, of any size; undefined: none.
struct Images {
  at::Tensor first{}, last{};
};

/// Of RGB bytes [height, width, 3], fp32 in 0..1.
at::Tensor image_of(const uint8_t* pixels, int64_t height, int64_t width);

/// A smooth picture of random colours, fp32 [height, width, 3] in 0..1, for models with random weights.
at::Tensor make_up_image(int64_t height, int64_t width, uint64_t seed);

}  // namespace sparsereel::models
