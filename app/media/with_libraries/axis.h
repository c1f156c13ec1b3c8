// The axes of charts and the places of their labels. No OpenCV.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::app {

/// An axis that spans its values with some air.
class Axis {
 public:
  /// values: at least one; above 0 on a logarithmic axis.
  explicit Axis(std::vector<double> values, bool logarithmic = false);

  /// Where a value lies between two pixels.
  int place(double value, int from, int to) const;
  /// Round numbers, three to eleven of them: 1, 2 or 5 and zeros apart, or on a logarithmic axis 1, 2, 5, 10, 20 ...
  std::vector<double> ticks() const;

 private:
  double scaled(double value) const;
  std::vector<double> even_ticks(double low, double high) const;

  bool logarithmic_;
  double least_ = 0, most_ = 1;  // logarithms where it is logarithmic
};

/// As short as it can be: "0.02", "25", "1e-05".
std::string tick_text(double tick);

/// A rectangle of a picture, in pixels.
struct Box {
  int x = 0, y = 0, width = 0, height = 0;

  int area() const { return width * height; }
  /// Pixels that both cover.
  int shared_with(const Box& other) const;
};

/// A point, and the size of what is to stand beside it.
struct Labelled {
  int x = 0, y = 0;
  int width = 0, height = 0;
};

/// A place for each label, in `paper`: none covers another where there is room, and as little as may be of `taken`.
std::vector<Box> place_labels(const std::vector<Labelled>& points, const std::vector<Box>& taken, const Box& paper);

}  // namespace sparsereel::app
