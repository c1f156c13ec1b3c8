// Draws charts of measurements with gnuplot, for an 8 cm column of a paper.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sparsereel::app {

/// One configuration. It is drawn as a stacked bar, and as a point of quality against speed.
struct PlotRow {
  std::string name;               // "sparse 0.5"
  std::vector<double> parts;      // milliseconds, in the order of PlotData::parts; empty if the bar has no parts
  double total = 0;               // milliseconds
  std::optional<double> speedup;  // x of the point, which is drawn only if speedup and quality are set
  std::optional<double> quality;  // y of the point
};

struct PlotData {
  std::string title;               // the caption: model, dtype, machine
  std::string unit;                // unit of the bars: "ms a step"
  std::string quality;             // label of the points' y axis: "PSNR dB against full attention"
  std::vector<std::string> parts;  // "matmul", "attention", "rest"
  std::vector<PlotRow> rows;
};

/// A series of configurations that differ in one number, drawn as points or as a line.
struct Curve {
  struct Point {
    std::string label;  // the number: "0.3"
    double x = 0, y = 0;
  };
  std::string name;
  std::vector<Point> points;
};

struct CurvesData {
  std::string title;         // the caption
  std::string x, y;          // labels of the axes
  bool logarithmic = false;  // a logarithmic y axis; all y must be above 0
  std::vector<Curve> curves;
  bool joined = true;                       // draw each curve as a line
  std::vector<Curve::Point> frontier = {};  // points of the curves through which a separate line is drawn
  std::optional<double> mark;               // x of a vertical line, which mark_name explains
  std::string mark_name;
};

/// A table of shares, drawn in colors from pale (0) to dark (1). A field with NaN stays empty.
struct HeatMap {
  std::string title;
  std::string rows, columns;                // names of the axes: "layer", "step"
  std::vector<std::vector<double>> values;  // [row][column]
};

/// Throws Error naming the option unless the file ends in .png, .svg or .pdf and can be written. If gnuplot is missing,
/// only prints a warning, because it may be installed during a long run.
void check_chart(const std::string& option, const std::filesystem::path& path);

/// Draws the bars, and below them the points of rows that have speedup and quality. The write is atomic. Throws Error
/// naming the file if check_chart() would refuse it, or if gnuplot is missing or fails.
void write_plot(const std::filesystem::path& path, const PlotData& data);

/// Draws the curves of all entries in one picture, with their names below. The first entry gives the labels and the
/// scale of the axes. Writes and throws like write_plot().
void write_curves(const std::filesystem::path& path, const std::vector<CurvesData>& data);

/// Draws the maps one below the other, each with a scale. Writes and throws like write_plot().
void write_heat_maps(const std::filesystem::path& path, const std::string& caption, const std::vector<HeatMap>& maps);

}  // namespace sparsereel::app
