// Draws charts with OpenCV; see plot.h.
#include "app/media/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <opencv2/imgproc.hpp>

#include "app/media/png.h"

namespace sparsereel::app {
namespace {

constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;
constexpr double kScale = 0.45;
constexpr int kLine = 20, kMargin = 16, kBarHeight = 24, kBarGap = 12;
constexpr int kNameWidth = 190, kBarWidth = 420, kFigureWidth = 70;
constexpr int kPointsWidth = 380, kPointsHeight = 300;
constexpr int kCurvesWidth = 760, kCurvesHeight = 480;

const cv::Scalar kInk(40, 40, 40), kPaper(255, 255, 255), kGrid(225, 225, 225);
/// RGB; told apart in grey and by people who see fewer colours.
const std::vector<cv::Scalar> kColours = {{0, 90, 160}, {230, 130, 20}, {150, 150, 150}, {90, 170, 110}};
const std::vector<cv::Scalar> kCurveColours = {{0, 90, 160},   {230, 130, 20},  {90, 170, 110},
                                               {120, 60, 130}, {150, 150, 150}, {60, 60, 60}};

void write(cv::Mat& image, const std::string& text, const cv::Point& at, const cv::Scalar& colour = kInk) {
  cv::putText(image, text, at, kFont, kScale, colour, 1, cv::LINE_AA);
}

int width_of(const std::string& text) {
  return cv::getTextSize(text, kFont, kScale, 1, nullptr).width;
}

std::string short_number(double value) {
  std::array<char, 32> text{};
  const double size = std::abs(value);
  std::snprintf(text.data(), text.size(), size > 0 && size < 0.1 ? "%.2g" : size < 10 ? "%.2f" : "%.0f", value);
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
  double least = 0, most = 1;  // logarithms where it is logarithmic
  bool logarithmic = false;

  explicit Axis(std::vector<double> values, bool is_logarithmic = false) : logarithmic(is_logarithmic) {
    for (double& value : values) value = scaled(value);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const double little = logarithmic ? 0.05 : std::max(std::abs(*high), 1e-6) * 0.05;
    const double air = std::max((*high - *low) * 0.15, little);
    least = logarithmic || *low < 0 ? *low - air : std::max(*low - air, 0.0);
    most = *high + air;
  }
  double scaled(double value) const { return logarithmic ? std::log10(value) : value; }
  int place(double value, int from, int to) const {
    return from + static_cast<int>(std::lround((scaled(value) - least) / (most - least) * (to - from)));
  }
  std::vector<double> ticks() const;
};

/// Five at equal distances; 1, 2, 5, 10, ... on a logarithmic axis, or powers of ten alone where it is long.
std::vector<double> Axis::ticks() const {
  std::vector<double> ticks;
  constexpr int lines = 4;
  if (!logarithmic)
    for (int i = 0; i <= lines; ++i) ticks.push_back(least + (most - least) * i / lines);
  const std::vector<double> steps = most - least > 3 ? std::vector<double>{1} : std::vector<double>{1, 2, 5};
  for (double power = std::floor(least); logarithmic && power <= most; ++power)
    for (const double step : steps)
      if (const double tick = step * std::pow(10, power); scaled(tick) >= least && scaled(tick) <= most)
        ticks.push_back(tick);
  return ticks;
}

/// The rectangle in which points lie.
struct Field {
  int x0, x1, y0, y1;  // left, right, bottom, top

  cv::Point place(const Axis& across, const Axis& up, double x, double y) const {
    return {across.place(x, x0, x1), up.place(y, y0, y1)};
  }
};

void draw_grid(cv::Mat& image, const Field& field, const Axis& across, const Axis& up, int left) {
  for (const double tick : across.ticks()) {
    const int x = across.place(tick, field.x0, field.x1);
    cv::line(image, {x, field.y0}, {x, field.y1}, kGrid);
    write(image, short_number(tick), {x - 14, field.y0 + 18});
  }
  for (const double tick : up.ticks()) {
    const int y = up.place(tick, field.y0, field.y1);
    cv::line(image, {field.x0, y}, {field.x1, y}, kGrid);
    write(image, short_number(tick), {left, y + 5});
  }
}

/// A point of a chart and its name.
struct Spot {
  cv::Point centre;
  std::string label;
  cv::Scalar colour;
  bool joined = false;  // a line comes from the spot before
};

/// What a line covers, in small steps.
void add_line(const cv::Point& from, const cv::Point& to, std::vector<cv::Rect>& taken) {
  const int steps = static_cast<int>(cv::norm(to - from) / 4);
  for (int i = 0; i < steps; ++i) {
    const cv::Point at = from + (to - from) * (static_cast<double>(i) / steps);
    taken.emplace_back(at.x - 2, at.y - 2, 4, 4);
  }
}

/// The place beside a point that covers the least of what is there, a near one rather than a far one.
cv::Rect find_place(const Spot& spot, const std::vector<cv::Rect>& taken, const cv::Size& paper) {
  const int width = width_of(spot.label), height = 12, x = spot.centre.x, y = spot.centre.y;
  const cv::Rect all({0, 0}, paper);
  cv::Rect best;
  int least = std::numeric_limits<int>::max();
  for (const int rise : {0, -14, 14, -28, 28}) {
    for (const int left : {x + 9, x - 9 - width, x - width / 2}) {
      if (left == x - width / 2 && rise == 0) continue;  // on the point itself
      const cv::Rect place(left, y - height / 2 + rise, width, height);
      int covered = std::abs(rise) + 4 * (place.area() - (place & all).area());
      for (const cv::Rect& other : taken) covered += (place & other).area();
      if (covered >= least) continue;
      least = covered;
      best = place;
    }
  }
  return best;
}

/// All points first, so that no label hides one.
void draw_spots(cv::Mat& image, const std::vector<Spot>& spots) {
  constexpr int radius = 5;
  std::vector<cv::Rect> taken;
  for (const Spot& spot : spots) {
    cv::circle(image, spot.centre, radius, spot.colour, cv::FILLED, cv::LINE_AA);
    taken.emplace_back(spot.centre.x - radius, spot.centre.y - radius, 2 * radius, 2 * radius);
  }
  for (size_t i = 1; i < spots.size(); ++i)
    if (spots[i].joined) add_line(spots[i - 1].centre, spots[i].centre, taken);
  for (const Spot& spot : spots) {
    const cv::Rect place = find_place(spot, taken, image.size());
    write(image, spot.label, {place.x, place.y + place.height - 1}, spot.colour);
    taken.push_back(place);
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
  const Field field = {left + 50, left + kPointsWidth - 20, top + kPointsHeight - 40, top + kLine};
  write(image, data.quality + " against speed (x full)", {left, top});
  draw_grid(image, field, across, up, left);
  std::vector<Spot> spots;
  for (const PlotRow& row : data.rows)
    if (has_point(row))
      spots.push_back({field.place(across, up, *row.speedup, *row.quality), row.name, kColours.front(), false});
  draw_spots(image, spots);
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

const cv::Scalar& colour_of(size_t curve) {
  return kCurveColours[curve % kCurveColours.size()];
}

/// Lines now; the points, which belong on top of all lines, are added to `spots`.
void draw_curve(cv::Mat& image, const Curve& curve, const Field& field, const Axis& across, const Axis& up,
                const cv::Scalar& colour, std::vector<Spot>& spots) {
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const cv::Point place = field.place(across, up, curve.points[i].x, curve.points[i].y);
    if (i > 0) cv::line(image, spots.back().centre, place, colour, 2, cv::LINE_AA);
    spots.push_back({place, curve.points[i].label, colour, i > 0});
  }
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
  int width = std::max(kCurvesWidth, width_of(data.title) + 2 * kMargin);
  for (const Curve& curve : data.curves) width = std::max(width, width_of(curve.name) + 4 * kMargin);
  const int height = kCurvesHeight + static_cast<int>(data.curves.size()) * kLine + kMargin;
  cv::Mat image(height + height % 2, width + width % 2, CV_8UC3, kPaper);
  const Field field = {kMargin + 50, image.cols - kMargin - 20, kCurvesHeight - 60, kMargin + 3 * kLine};
  write(image, data.title, {kMargin, kMargin + 10});
  write(image, data.y, {kMargin, kMargin + 10 + kLine});
  draw_grid(image, field, across, up, kMargin);
  write(image, data.x, {field.x1 - width_of(data.x), field.y0 + 2 * kLine});
  if (data.mark) {
    const int x = across.place(*data.mark, field.x0, field.x1);
    cv::line(image, {x, field.y0}, {x, field.y1}, kInk, 1, cv::LINE_AA);
    write(image, data.mark_name, {x - width_of(data.mark_name) / 2, field.y1 - 6});
  }
  std::vector<Spot> spots;
  int y = kCurvesHeight;
  for (size_t i = 0; i < data.curves.size(); ++i, y += kLine) {
    draw_curve(image, data.curves[i], field, across, up, colour_of(i), spots);
    cv::rectangle(image, {kMargin, y - 10, 12, 12}, colour_of(i), cv::FILLED);
    write(image, data.curves[i].name, {kMargin + 18, y});
  }
  draw_spots(image, spots);
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
