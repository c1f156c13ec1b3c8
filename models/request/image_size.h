// The size of a video that has an image's shape. No torch.
#pragma once

#include "models/request/request.h"

namespace sparsereel::models {

/// What has the usual shape of a video: 16 to 9.
constexpr PixelSize kUsualShape = {.height = 9, .width = 16};

/// Of the sizes on a grid (height and width are multiples of its) of at most `area` pixels, a large one whose shape is
/// near the image's: as high as its width allows, or as wide as its height does, whichever is nearer. At least a step
/// each way, and at most `largest`, where that is not 0, in the
/// image's shape.
PixelSize size_like(const PixelSize& image, int64_t area, const PixelSize& grid, const PixelSize& largest = {});

}  // namespace sparsereel::models
