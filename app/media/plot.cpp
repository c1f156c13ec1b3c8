// Draws charts with OpenCV; see plot.h.
#include "app/media/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <opencv2/imgproc.hpp>

#include "app/media/png.h"

namespace sparsereel::app {
namespace {

constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;
constexpr double kScale = 0.45;
constexpr int kLine = 20, kMargin = 16, kBarHeight = 24, kBarGap = 12;
constexpr int kNameWidth = 190, kBarWidth = 420, kFigureWidth = 70;
constexpr int kPointsWidth = 380, kPointsHeight = 300;

const cv::Scalar kInk(40, 40, 40), kPaper(255, 255, 255), kGrid(225, 225, 225);
/// RGB; told apart in grey and by people who see fewer colours.
const std::vector<cv::Scalar> kColours = {{0, 90, 160}, {230, 130, 20}, {150, 150, 150}, {90, 170, 110}};

void write(cv::Mat& image, const std::string& text, const cv::Point& at) {
  cv::putText(image, text, at, kFont, kScale, kInk, 1, cv::LINE_AA);
}

int width_of(const std::string& text) {
  return cv::getTextSize(text, kFont, kScale, 1, nullptr).width;
}

std::string short_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value < 10 ? "%.2f" : "%.0f", value);
  return text.data();
}

void draw_legend(cv::Mat& image, const PlotData& data, int x, int y) {
  for (size_t i = 0; i < data.parts.size(); ++i) {
    cv::rectangle(image, {x, y - 10, 12, 12}, kColours[i % kColours.size()], cv::FILLED);
    write(image, data.parts[i], {x + 18, y});
    x += 18 + width_of(data.parts[i]) + 18;
  }
}

void draw_bar(cv::Mat& image, const PlotRow& row, double longest, int y) {
  write(image, row.name, {kMargin, y + kBarHeight - 8});
  const double scale = kBarWidth / longest;
  const std::vector<double> parts = row.parts.empty() ? std::vector<double>{row.total} : row.parts;
  double begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double end = begin + std::max(parts[i], 0.0);
    const int left = kNameWidth + static_cast<int>(std::lround(begin * scale));
    const int right = kNameWidth + static_cast<int>(std::lround(end * scale));
    const cv::Scalar& colour = row.parts.empty() ? kColours.back() : kColours[i % kColours.size()];
    if (right > left) cv::rectangle(image, {left, y, right - left, kBarHeight}, colour, cv::FILLED);
    begin = end;
  }
  write(image, short_number(row.total), {kNameWidth + static_cast<int>(begin * scale) + 6, y + kBarHeight - 8});
}

void draw_bars(cv::Mat& image, const PlotData& data, int top) {
  double longest = 0;
  for (const PlotRow& row : data.rows) {
    double sum = 0;
    for (const double part : row.parts) sum += part;
    longest = std::max({longest, sum, row.total});
  }
  write(image, data.unit, {kMargin, top});
  draw_legend(image, data, kNameWidth, top);
  int y = top + kLine;
  for (const PlotRow& row : data.rows) {
    draw_bar(image, row, longest > 0 ? longest : 1, y);
    y += kBarHeight + kBarGap;
  }
}

bool has_point(const PlotRow& row) {
  return row.speedup && row.quality;
}

/// An axis that spans its values with some air.
struct Axis {
  double least = 0, most = 1;

  explicit Axis(const std::vector<double>& values) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const double air = std::max((*high - *low) * 0.15, std::max(std::abs(*high), 1e-6) * 0.05);
    least = *low - air;
    most = *high + air;
  }
  int place(double value, int from, int to) const {
    return from + static_cast<int>(std::lround((value - least) / (most - least) * (to - from)));
  }
};

void draw_points(cv::Mat& image, const PlotData& data, int left, int top) {
  std::vector<double> speeds, qualities;
  for (const PlotRow& row : data.rows) {
    if (!has_point(row)) continue;
    speeds.push_back(*row.speedup);
    qualities.push_back(*row.quality);
  }
  const Axis across(speeds), up(qualities);
  const int x0 = left + 50, x1 = left + kPointsWidth - 20, y0 = top + kPointsHeight - 40, y1 = top + kLine;
  write(image, data.quality + " against speed (x full)", {left, top});
  constexpr int lines = 4;
  for (int i = 0; i <= lines; ++i) {
    const double share = static_cast<double>(i) / lines;
    const int x = x0 + static_cast<int>(share * (x1 - x0)), y = y0 + static_cast<int>(share * (y1 - y0));
    cv::line(image, {x, y0}, {x, y1}, kGrid);
    cv::line(image, {x0, y}, {x1, y}, kGrid);
    write(image, short_number(across.least + share * (across.most - across.least)), {x - 14, y0 + 18});
    write(image, short_number(up.least + share * (up.most - up.least)), {left, y + 5});
  }
  for (const PlotRow& row : data.rows) {
    if (!has_point(row)) continue;
    const cv::Point centre(across.place(*row.speedup, x0, x1), up.place(*row.quality, y0, y1));
    cv::circle(image, centre, 5, kColours.front(), cv::FILLED, cv::LINE_AA);
    const int right = centre.x + 8 + width_of(row.name);
    write(image, row.name, {right < image.cols ? centre.x + 8 : centre.x - 8 - width_of(row.name), centre.y - 6});
  }
}

cv::Mat draw(const PlotData& data) {
  const bool points = std::any_of(data.rows.begin(), data.rows.end(), has_point);
  const int bars = kNameWidth + kBarWidth + kFigureWidth;
  const int bars_height = 2 * kLine + static_cast<int>(data.rows.size()) * (kBarHeight + kBarGap);
  const int height = kMargin + 2 * kLine + std::max(bars_height, points ? kPointsHeight : 0) + kMargin;
  const int width = std::max(bars + (points ? kPointsWidth : 0), width_of(data.title) + 2 * kMargin);
  cv::Mat image(height + height % 2, width + width % 2, CV_8UC3, kPaper);
  write(image, data.title, {kMargin, kMargin + 10});
  draw_bars(image, data, kMargin + 2 * kLine);
  if (points) draw_points(image, data, bars, kMargin + 2 * kLine);
  return image;
}

}  // namespace

void write_plot(const std::filesystem::path& path, const PlotData& data) {
  check_png("the plot", path);
  const cv::Mat image = draw(data);
  write_png(path, image.cols, image.rows, {image.datastart, image.dataend});
}

}  // namespace sparsereel::app
