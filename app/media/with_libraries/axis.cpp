// Round ticks, and labels out of each other's way.
#include "app/media/with_libraries/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace sparsereel::app {
namespace {

/// The largest of 1, 2, 5, 10, 20 ... that is no larger than `size`.
double round_step(double size) {
  const double power = std::pow(10, std::floor(std::log10(size)));
  double step = power;
  for (const double digit : {2.0, 5.0, 10.0})
    if (digit * power <= size * (1 + 1e-9)) step = digit * power;
  return step;
}

}  // namespace

Axis::Axis(std::vector<double> values, bool logarithmic) : logarithmic_(logarithmic) {
  for (double& value : values) value = scaled(value);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double little = logarithmic ? 0.05 : std::max(std::abs(*high), 1e-6) * 0.05;
  const double air = std::max((*high - *low) * 0.15, little);
  least_ = logarithmic || *low < 0 ? *low - air : std::max(*low - air, 0.0);
  most_ = *high + air;
}

double Axis::scaled(double value) const {
  return logarithmic_ ? std::log10(value) : value;
}

int Axis::place(double value, int from, int to) const {
  return from + static_cast<int>(std::lround((scaled(value) - least_) / (most_ - least_) * (to - from)));
}

std::vector<double> Axis::even_ticks(double low, double high) const {
  constexpr double kLeastTicks = 4;
  const double step = round_step((high - low) / kLeastTicks);
  std::vector<double> ticks;
  for (double count = std::ceil(low / step - 1e-9); count * step <= high * (1 + 1e-12); ++count)
    ticks.push_back(count * step);
  return ticks;
}

std::vector<double> Axis::ticks() const {
  constexpr size_t kFewest = 3;
  if (!logarithmic_) return even_ticks(least_, most_);
  const std::vector<double> digits = most_ - least_ > 3 ? std::vector<double>{1} : std::vector<double>{1, 2, 5};
  std::vector<double> ticks;
  for (double power = std::floor(least_); power <= most_; ++power)
    for (const double digit : digits)
      if (const double tick = digit * std::pow(10, power); scaled(tick) >= least_ && scaled(tick) <= most_)
        ticks.push_back(tick);
  return ticks.size() < kFewest ? even_ticks(std::pow(10, least_), std::pow(10, most_)) : ticks;
}

std::string tick_text(double tick) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), std::abs(tick) >= 1e6 ? "%.4g" : "%.7g", tick);
  return text.data();
}

int Box::shared_with(const Box& other) const {
  const int across = std::min(x + width, other.x + other.width) - std::max(x, other.x);
  const int down = std::min(y + height, other.y + other.height) - std::max(y, other.y);
  return across > 0 && down > 0 ? across * down : 0;
}

namespace {

/// The place that covers the least of what is there, a near one rather than a far one. On a label nothing is read.
Box find_place(const Labelled& point, const std::vector<Box>& taken, const std::vector<Box>& labels, const Box& paper) {
  constexpr int kOnLabel = 1000, kOnPoint = 5, kOutside = 4, kRise = 14, kFarthest = 10;
  Box best;
  int least = std::numeric_limits<int>::max();
  for (int far = 0; far <= 2 * kFarthest; ++far) {
    const int rise = (far % 2 == 0 ? 1 : -1) * ((far + 1) / 2) * kRise;  // 0, -14, 14, -28 ...
    for (const int left : {point.x + 9, point.x - 9 - point.width, point.x - point.width / 2}) {
      if (left == point.x - point.width / 2 && rise == 0) continue;  // on the point itself
      const Box place{left, point.y - point.height / 2 + rise, point.width, point.height};
      int cost = std::abs(rise) + kOutside * (place.area() - place.shared_with(paper));
      for (const Box& other : taken) cost += kOnPoint * place.shared_with(other);
      for (const Box& other : labels) cost += kOnLabel * place.shared_with(other);
      if (cost >= least) continue;
      least = cost;
      best = place;
    }
  }
  return best;
}

}  // namespace

std::vector<Box> place_labels(const std::vector<Labelled>& points, const std::vector<Box>& taken, const Box& paper) {
  std::vector<Box> labels;
  for (const Labelled& point : points) labels.push_back(find_place(point, taken, labels, paper));
  return labels;
}

}  // namespace sparsereel::app
