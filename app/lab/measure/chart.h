// Charts of measurements, which gnuplot draws for a paper's column of 8 cm.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sparsereel::app {

/// One way to run: a stacked bar, and a point of quality against speed.
struct PlotRow {
  std::string name;               // "sparse 0.5"
  std::vector<double> parts;      // milliseconds, in the order of PlotData::parts; empty: the total is in one piece
  double total = 0;               // milliseconds
  std::optional<double> speedup;  // of the point; no point without both
  std::optional<double> quality;
};

struct PlotData {
  std::string title;               // the caption: model, dtype, machine
  std::string unit;                // of the bars: "ms a step"
  std::string quality;             // of the points' axis up: "PSNR dB against full attention"
  std::vector<std::string> parts;  // "matmul", "attention", "rest"
  std::vector<PlotRow> rows;
};

/// Ways to run that differ in one number: points, or a line of them.
struct Curve {
  struct Point {
    std::string label;  // of the number: "0.3"
    double x = 0, y = 0;
  };
  std::string name;
  std::vector<Point> points;
};

struct CurvesData {
  std::string title;         // the caption
  std::string x, y;          // what the axes show
  bool logarithmic = false;  // the axis of y, all of whose values are above 0
  std::vector<Curve> curves;
  bool joined = true;                       // each curve is a line
  std::vector<Curve::Point> frontier = {};  // a line by itself, through points of the curves
  std::optional<double> mark;               // a vertical line there, with a name
  std::string mark_name;
};

/// A table of shares, drawn as colours from pale (0) to dark (1); nothing is drawn where a value is NaN.
struct HeatMap {
  std::string title;
  std::string rows, columns;                // what they are: "layer", "step"
  std::vector<std::vector<double>> values;  // [row][column]
};

/// Throws Error naming the option unless the file ends in .png, .svg or .pdf and can be written. Prints a warning where
/// gnuplot is missing: it may be installed while a long run goes on.
void check_chart(const std::string& option, const std::filesystem::path& path);

/// Bars, and below them points where there are any. Atomic. Throws Error naming the file: what check_chart() refuses, a
/// machine without gnuplot, or what gnuplot says.
void write_plot(const std::filesystem::path& path, const PlotData& data);

/// One picture of all curves, their names below; the axes are those of the first. Otherwise as write_plot().
void write_curves(const std::filesystem::path& path, const std::vector<CurvesData>& data);

/// One below the other, each with a scale. Otherwise as write_plot().
void write_heat_maps(const std::filesystem::path& path, const std::string& caption, const std::vector<HeatMap>& maps);

}  // namespace sparsereel::app
