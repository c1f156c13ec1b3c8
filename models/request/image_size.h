// Chooses the size of a video that has an image's shape. No torch.
#pragma once

#include "models/request/request.h"

namespace sparsereel::models {

constexpr PixelSize kUsualShape = {.height = 9, .width = 16};

/// Returns a large size of at most `area` pixels with nearly the shape of the image. Height and width are multiples of
/// `grid`. One candidate is as wide as the area allows, the other as high; the candidate nearer in shape wins. It has
/// at least one grid step on each axis. Unless `largest` is 0, the size also fits into `largest`, in the image's shape.
PixelSize size_like(const PixelSize& image, int64_t area, const PixelSize& grid, const PixelSize& largest = {});

}  // namespace sparsereel::models
