// Computes sizes of videos with nearly an image's aspect ratio. size_like() follows best_output_size(), a function in
// one model's reference code.
#include "models/request/image_size.h"

#include <algorithm>
#include <cmath>

namespace sparsereel::models {
namespace {

int64_t on_grid(int64_t length, int64_t step) {
  return std::max(length / step, int64_t{1}) * step;
}

/// Returns the largest length that one side of a rectangle with at most this area can have, if this side and the other
/// side have the ratio `one` : `other`.
int64_t side_of(int64_t area, int64_t one, int64_t other) {
  const auto fits = [&](int64_t side) {
    return static_cast<long double>(side) * static_cast<long double>(side) * static_cast<long double>(other) <=
           static_cast<long double>(area) * static_cast<long double>(one);
  };
  auto side = static_cast<int64_t>(
      std::sqrt(static_cast<double>(area) * static_cast<double>(one) / static_cast<double>(other)));
  while (side > 1 && !fits(side)) --side;
  while (fits(side + 1)) ++side;
  return side;
}

/// Returns how much the aspect ratios of `size` and the image differ: the larger ratio divided by the smaller one.
double distortion(const PixelSize& size, const PixelSize& image) {
  const double ratio = static_cast<double>(size.width) * static_cast<double>(image.height) /
                       (static_cast<double>(size.height) * static_cast<double>(image.width));
  return std::max(ratio, 1 / ratio);
}

}  // namespace

PixelSize size_like(const PixelSize& image, int64_t area, const PixelSize& grid, const PixelSize& largest) {
  const int64_t width = side_of(area, image.width, image.height), height = side_of(area, image.height, image.width);
  PixelSize wide, high;
  wide.width = on_grid(std::min(width, area / grid.height), grid.width);
  wide.height = on_grid(area / wide.width, grid.height);
  high.height = on_grid(std::min(height, area / grid.width), grid.height);
  high.width = on_grid(area / high.height, grid.width);
  PixelSize size = distortion(wide, image) < distortion(high, image) ? wide : high;
  if (largest.width > 0 && size.width > largest.width)
    size = {.height = on_grid(largest.width * image.height / image.width, grid.height),
            .width = on_grid(largest.width, grid.width)};
  if (largest.height > 0 && size.height > largest.height)
    size = {.height = on_grid(largest.height, grid.height),
            .width = on_grid(largest.height * image.width / image.height, grid.width)};
  return size;
}

PixelSize size_of_short_edge(const PixelSize& image, double short_edge, int64_t area, const PixelSize& grid) {
  const double ratio = static_cast<double>(image.width) / static_cast<double>(image.height);
  double width = ratio >= 1 ? short_edge * ratio : short_edge, height = ratio >= 1 ? short_edge : short_edge / ratio;
  if (const double all = width * height; all > static_cast<double>(area)) {
    const double scale = std::sqrt(static_cast<double>(area) / all);
    width *= scale;
    height *= scale;
  }
  const auto rounded = [](double length, int64_t step) {
    return std::max(std::llrint(length / static_cast<double>(step)), 1LL) * step;
  };
  return {.height = rounded(height, grid.height), .width = rounded(width, grid.width)};
}

}  // namespace sparsereel::models
