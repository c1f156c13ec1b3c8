// Draws tables of shares with OpenCV: write_heat_maps() of plot.h.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/media/plot.h"
#include "app/media/with_libraries/lettering.h"
#include "app/media/with_libraries/png.h"

namespace sparsereel::app {
namespace {

constexpr Lettering kSmall{.scale = 0.4};
constexpr int kMapMargin = 16, kMapLine = 18, kAxis = 62, kLeastWidth = 420;
constexpr int kScaleHeight = 12, kScaleWidth = 200;

/// Pale yellow over green to dark blue: lightness alone tells it, in grey too.
cv::Scalar colour(double share) {
  const cv::Scalar low(253, 246, 206), middle(70, 165, 155), high(20, 28, 90);  // RGB
  const double at = std::clamp(share, 0.0, 1.0) * 2;
  const auto mix = [](const cv::Scalar& a, const cv::Scalar& b, double t) { return a * (1 - t) + b * t; };
  return at < 1 ? mix(low, middle, at) : mix(middle, high, at - 1);
}

size_t columns_of(const HeatMap& map) {
  size_t most = 1;
  for (const auto& row : map.values) most = std::max(most, row.size());
  return most;
}

/// Pixels of a cell: as large as a page of 900 pixels allows.
int cell_of(const HeatMap& map) {
  const auto largest = std::max(columns_of(map), map.values.size());
  return std::clamp(static_cast<int>(840 / std::max<size_t>(largest, 1)), 6, 28);
}

int height_of(const HeatMap& map) {
  return 3 * kMapLine + static_cast<int>(map.values.size()) * cell_of(map) + kMapLine;
}

/// About ten labels an axis.
bool is_labelled(size_t index, size_t count) {
  const size_t every = count <= 12 ? 1 : count <= 30 ? 5 : 10;
  return index % every == 0;
}

void draw(cv::Mat& image, const HeatMap& map, int top) {
  const int cell = cell_of(map), left = kMapMargin + kAxis, cells = top + 2 * kMapLine;
  kSmall.write(image, map.title, {kMapMargin, top + 10});
  kSmall.write(image, map.rows, {kMapMargin, cells + 10});
  for (size_t column = 0; column < columns_of(map); ++column) {
    if (is_labelled(column, columns_of(map)))
      kSmall.write(image, std::to_string(column), {left + static_cast<int>(column) * cell, cells - 5});
  }
  kSmall.write(image, map.columns, {left + static_cast<int>(columns_of(map)) * cell + 8, cells - 5});
  for (size_t row = 0; row < map.values.size(); ++row) {
    const int y = cells + static_cast<int>(row) * cell;
    if (is_labelled(row, map.values.size())) kSmall.write(image, std::to_string(row), {left - 24, y + cell / 2 + 4});
    for (size_t column = 0; column < map.values[row].size(); ++column) {
      const double value = map.values[row][column];
      if (!std::isnan(value))
        cv::rectangle(image, {left + static_cast<int>(column) * cell, y, cell - 1, cell - 1}, colour(value),
                      cv::FILLED);
    }
  }
}

void draw_scale(cv::Mat& image, int top) {
  const int left = kMapMargin + kAxis;
  for (int x = 0; x < kScaleWidth; ++x)
    cv::line(image, {left + x, top}, {left + x, top + kScaleHeight}, colour(static_cast<double>(x) / kScaleWidth));
  kSmall.write(image, "0", {left - 12, top + 10});
  kSmall.write(image, "1", {left + kScaleWidth + 6, top + 10});
}

}  // namespace

void write_heat_maps(const std::filesystem::path& path, const std::vector<HeatMap>& maps) {
  check_png("the heat map", path);
  int width = kLeastWidth, height = kMapMargin + kScaleHeight + kMapMargin;
  for (const HeatMap& map : maps) {
    const int cells = kAxis + static_cast<int>(columns_of(map)) * cell_of(map) + 8 + kSmall.width_of(map.columns);
    width = std::max({width, cells + 2 * kMapMargin, kSmall.width_of(map.title) + 2 * kMapMargin});
    height += height_of(map);
  }
  cv::Mat image(height + height % 2, width + width % 2, CV_8UC3, kPaper);
  int top = kMapMargin;
  for (const HeatMap& map : maps) {
    draw(image, map, top);
    top += height_of(map);
  }
  draw_scale(image, top);
  write_png(path, image.cols, image.rows, {image.datastart, image.dataend});
}

}  // namespace sparsereel::app
