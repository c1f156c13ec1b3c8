// Chooses the size of a video that has an image's shape. No torch.
#pragma once

#include "models/request/request.h"

namespace sparsereel::models {

constexpr PixelSize kUsualShape = {.height = 9, .width = 16};

/// Returns a large size of at most `area` pixels with nearly the shape of the image. Height and width are multiples of
/// `grid`, at least one. There are two candidates: one rounds the width down first and gives the height the rest of the
/// area, the other does the reverse. The candidate nearer to the image's shape is returned. If `largest` is not 0, the
/// size is reduced to fit into `largest`, and keeps the image's shape.
PixelSize size_like(const PixelSize& image, int64_t area, const PixelSize& grid, const PixelSize& largest = {});

/// Returns the size that has the image's shape and a shorter side of `short_edge`; the size is made smaller if it has
/// more than `area` pixels. Height and width are then rounded to the nearest multiples of `grid`, at least one; halves
/// are rounded to even multiples.
PixelSize size_of_short_edge(const PixelSize& image, double short_edge, int64_t area, const PixelSize& grid);

}  // namespace sparsereel::models
