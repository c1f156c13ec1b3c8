// Draws charts with OpenCV.
#include "app/media/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "app/media/with_libraries/axis.h"
#include "app/media/with_libraries/lettering.h"
#include "app/media/with_libraries/png.h"

namespace sparsereel::app {
namespace {

constexpr Lettering kText{.scale = 0.45};
constexpr int kLine = 20, kMargin = 16, kBarHeight = 24, kBarGap = 12;
constexpr int kNameWidth = 190, kBarWidth = 420, kFigureWidth = 70;
constexpr int kPointsWidth = 480, kPointsHeight = 300;
constexpr int kCurvesWidth = 760, kCurvesHeight = 480;

const cv::Scalar kGrid(225, 225, 225);
/// RGB; told apart in grey and by people who see fewer colours.
const std::vector<cv::Scalar> kColours = {{0, 90, 160}, {230, 130, 20}, {150, 150, 150}, {90, 170, 110}};
const std::vector<cv::Scalar> kCurveColours = {{0, 90, 160},   {230, 130, 20},  {90, 170, 110},
                                               {120, 60, 130}, {150, 150, 150}, {60, 60, 60},
                                               {190, 40, 60},  {130, 90, 50},   {60, 180, 190}};

std::string short_number(double value) {
  std::array<char, 32> text{};
  const double size = std::abs(value);
  std::snprintf(text.data(), text.size(), size > 0 && size < 0.1 ? "%.2g" : size < 10 ? "%.2f" : "%.0f", value);
  return text.data();
}

/// Room for the names of bars.
int name_width(const PlotData& data) {
  int width = kNameWidth;
  for (const PlotRow& row : data.rows) width = std::max(width, kText.width_of(row.name) + 2 * kMargin);
  return width;
}

void draw_legend(cv::Mat& image, const PlotData& data, int x, int y) {
  for (size_t i = 0; i < data.parts.size(); ++i) {
    cv::rectangle(image, {x, y - 10, 12, 12}, kColours[i % kColours.size()], cv::FILLED);
    kText.write(image, data.parts[i], {x + 18, y});
    x += 18 + kText.width_of(data.parts[i]) + 18;
  }
}

/// `start`: where bars begin.
void draw_bar(cv::Mat& image, const PlotRow& row, double longest, int start, int y) {
  kText.write(image, row.name, {kMargin, y + kBarHeight - 8});
  const double scale = kBarWidth / longest;
  const std::vector<double> parts = row.parts.empty() ? std::vector<double>{row.total} : row.parts;
  double begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double end = begin + std::max(parts[i], 0.0);
    const int left = start + static_cast<int>(std::lround(begin * scale));
    const int right = start + static_cast<int>(std::lround(end * scale));
    const cv::Scalar& colour = row.parts.empty() ? kColours.back() : kColours[i % kColours.size()];
    if (right > left) cv::rectangle(image, {left, y, right - left, kBarHeight}, colour, cv::FILLED);
    begin = end;
  }
  kText.write(image, short_number(row.total), {start + static_cast<int>(begin * scale) + 6, y + kBarHeight - 8});
}

void draw_bars(cv::Mat& image, const PlotData& data, int top) {
  double longest = 0;
  for (const PlotRow& row : data.rows) {
    double sum = 0;
    for (const double part : row.parts) sum += part;
    longest = std::max({longest, sum, row.total});
  }
  kText.write(image, data.unit, {kMargin, top});
  const int start = name_width(data);
  draw_legend(image, data, start, top);
  int y = top + kLine;
  for (const PlotRow& row : data.rows) {
    draw_bar(image, row, longest > 0 ? longest : 1, start, y);
    y += kBarHeight + kBarGap;
  }
}

bool has_point(const PlotRow& row) {
  return row.speedup && row.quality;
}

/// The rectangle in which points lie.
struct Field {
  int x0, x1, y0, y1;  // left, right, bottom, top

  cv::Point place(const Axis& across, const Axis& up, double x, double y) const {
    return {across.place(x, x0, x1), up.place(y, y0, y1)};
  }
};

/// Ticks, and what the axis across shows below them.
void draw_grid(cv::Mat& image, const Field& field, const Axis& across, const Axis& up, const std::string& shown) {
  constexpr int air = 8;
  int end = std::numeric_limits<int>::min();  // of the label before
  for (const double tick : across.ticks()) {
    const int x = across.place(tick, field.x0, field.x1), width = kText.width_of(tick_text(tick));
    cv::line(image, {x, field.y0}, {x, field.y1}, kGrid);
    if (x - width / 2 < end + air) continue;
    kText.write(image, tick_text(tick), {x - width / 2, field.y0 + 18});
    end = x + width / 2;
  }
  for (const double tick : up.ticks()) {
    const int y = up.place(tick, field.y0, field.y1);
    cv::line(image, {field.x0, y}, {field.x1, y}, kGrid);
    kText.write(image, tick_text(tick), {field.x0 - air - kText.width_of(tick_text(tick)), y + 5});
  }
  kText.write(image, shown, {field.x1 - kText.width_of(shown), field.y0 + 2 * kLine});
}

/// A point of a chart and its name.
struct Spot {
  cv::Point centre;
  std::string label;
  cv::Scalar colour;
  bool joined = false;  // a line comes from the spot before
};

/// What a line covers, in small steps.
void add_line(const cv::Point& from, const cv::Point& to, std::vector<Box>& taken) {
  const int steps = static_cast<int>(cv::norm(to - from) / 4);
  for (int i = 0; i < steps; ++i) {
    const cv::Point at = from + (to - from) * (static_cast<double>(i) / steps);
    taken.push_back({at.x - 2, at.y - 2, 4, 4});
  }
}

/// From a point to a label that found no place beside it.
void draw_leader(cv::Mat& image, const Spot& spot, const Box& label) {
  constexpr int near = 22;
  const cv::Point to(std::clamp(spot.centre.x, label.x, label.x + label.width),
                     std::clamp(spot.centre.y, label.y, label.y + label.height));
  if (cv::norm(to - spot.centre) > near) cv::line(image, spot.centre, to, spot.colour, 1, cv::LINE_AA);
}

/// All points first, so that no label hides one; labels stay within the field.
void draw_spots(cv::Mat& image, const Field& field, const std::vector<Spot>& spots) {
  constexpr int radius = 5, height = 12;
  std::vector<Box> taken;
  std::vector<Labelled> points;
  for (const Spot& spot : spots) {
    cv::circle(image, spot.centre, radius, spot.colour, cv::FILLED, cv::LINE_AA);
    taken.push_back({spot.centre.x - radius, spot.centre.y - radius, 2 * radius, 2 * radius});
    points.push_back({spot.centre.x, spot.centre.y, kText.width_of(spot.label), height});
  }
  for (size_t i = 1; i < spots.size(); ++i)
    if (spots[i].joined) add_line(spots[i - 1].centre, spots[i].centre, taken);
  const std::vector<Box> labels =
      place_labels(points, taken, {field.x0, field.y1, field.x1 - field.x0, field.y0 - field.y1});
  for (size_t i = 0; i < spots.size(); ++i) {
    draw_leader(image, spots[i], labels[i]);
    kText.write(image, spots[i].label, {labels[i].x, labels[i].y + labels[i].height - 1}, spots[i].colour);
  }
}

void draw_points(cv::Mat& image, const PlotData& data, int left, int top) {
  std::vector<double> speeds, qualities;
  for (const PlotRow& row : data.rows) {
    if (!has_point(row)) continue;
    speeds.push_back(*row.speedup);
    qualities.push_back(*row.quality);
  }
  const Axis across(speeds), up(qualities);
  const Field field = {left + 50, left + kPointsWidth - 20, top + kPointsHeight - 50, top + kLine};
  kText.write(image, data.quality, {left, top});
  draw_grid(image, field, across, up, "speed, x full attention");
  std::vector<Spot> spots;
  for (const PlotRow& row : data.rows)
    if (has_point(row))
      spots.push_back({field.place(across, up, *row.speedup, *row.quality), row.name, kColours.front(), false});
  draw_spots(image, field, spots);
}

cv::Mat draw(const PlotData& data) {
  const bool points = std::any_of(data.rows.begin(), data.rows.end(), has_point);
  const int bars = name_width(data) + kBarWidth + kFigureWidth;
  const int bars_height = 2 * kLine + static_cast<int>(data.rows.size()) * (kBarHeight + kBarGap);
  const int height = kMargin + 2 * kLine + std::max(bars_height, points ? kPointsHeight : 0) + kMargin;
  const int width = std::max(bars + (points ? kPointsWidth : 0), kText.width_of(data.title) + 2 * kMargin);
  cv::Mat image(height + height % 2, width + width % 2, CV_8UC3, kPaper);
  kText.write(image, data.title, {kMargin, kMargin + 10});
  draw_bars(image, data, kMargin + 2 * kLine);
  if (points) draw_points(image, data, bars, kMargin + 2 * kLine);
  return image;
}

const cv::Scalar& colour_of(size_t curve) {
  return kCurveColours[curve % kCurveColours.size()];
}

/// Lines now; the points, which belong on top of all lines, are added to `spots`.
void draw_curve(cv::Mat& image, const Curve& curve, bool joined, const Field& field, const Axis& across, const Axis& up,
                const cv::Scalar& colour, std::vector<Spot>& spots) {
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const cv::Point place = field.place(across, up, curve.points[i].x, curve.points[i].y);
    const bool line = joined && i > 0;
    if (line) cv::line(image, spots.back().centre, place, colour, 2, cv::LINE_AA);
    spots.push_back({place, curve.points[i].label, colour, line});
  }
}

void draw_frontier(cv::Mat& image, const std::vector<Curve::Point>& points, const Field& field, const Axis& across,
                   const Axis& up) {
  for (size_t i = 1; i < points.size(); ++i)
    cv::line(image, field.place(across, up, points[i - 1].x, points[i - 1].y),
             field.place(across, up, points[i].x, points[i].y), kInk, 1, cv::LINE_AA);
}

cv::Mat draw(const CurvesData& data) {
  std::vector<double> xs, ys;
  for (const Curve& curve : data.curves) {
    for (const Curve::Point& point : curve.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  if (data.mark) xs.push_back(*data.mark);
  const Axis across(xs), up(ys, data.logarithmic);
  int width = std::max(kCurvesWidth, kText.width_of(data.title) + 2 * kMargin);
  for (const Curve& curve : data.curves) width = std::max(width, kText.width_of(curve.name) + 4 * kMargin);
  const int names = static_cast<int>(data.curves.size()) + (data.frontier.empty() ? 0 : 1);
  const int height = kCurvesHeight + names * kLine + kMargin;
  cv::Mat image(height + height % 2, width + width % 2, CV_8UC3, kPaper);
  const Field field = {kMargin + 50, image.cols - kMargin - 20, kCurvesHeight - 60, kMargin + 3 * kLine};
  kText.write(image, data.title, {kMargin, kMargin + 10});
  kText.write(image, data.y, {kMargin, kMargin + 10 + kLine});
  draw_grid(image, field, across, up, data.x);
  if (data.mark) {
    const int x = across.place(*data.mark, field.x0, field.x1);
    cv::line(image, {x, field.y0}, {x, field.y1}, kInk, 1, cv::LINE_AA);
    const int name = kText.width_of(data.mark_name);
    kText.write(image, data.mark_name, {std::min(x - name / 2, image.cols - name - 4), field.y1 - 6});
  }
  draw_frontier(image, data.frontier, field, across, up);
  std::vector<Spot> spots;
  int y = kCurvesHeight;
  for (size_t i = 0; i < data.curves.size(); ++i, y += kLine) {
    draw_curve(image, data.curves[i], data.joined, field, across, up, colour_of(i), spots);
    cv::rectangle(image, {kMargin, y - 10, 12, 12}, colour_of(i), cv::FILLED);
    kText.write(image, data.curves[i].name, {kMargin + 18, y});
  }
  if (!data.frontier.empty()) {
    cv::line(image, {kMargin, y - 4}, {kMargin + 12, y - 4}, kInk, 1, cv::LINE_AA);
    kText.write(image, "frontier: no other is nearer and faster", {kMargin + 18, y});
  }
  draw_spots(image, field, spots);
  return image;
}

}  // namespace

void write_plot(const std::filesystem::path& path, const PlotData& data) {
  check_png("the plot", path);
  const cv::Mat image = draw(data);
  write_png(path, image.cols, image.rows, {image.datastart, image.dataend});
}

void write_curves(const std::filesystem::path& path, const CurvesData& data) {
  check_png("the plot", path);
  const cv::Mat image = draw(data);
  write_png(path, image.cols, image.rows, {image.datastart, image.dataend});
}

}  // namespace sparsereel::app
