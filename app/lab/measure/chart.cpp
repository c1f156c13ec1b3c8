// Writes the data and texts for the gnuplot script that draws the charts.
#include "app/lab/measure/chart.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>

#include "app/jobs/report.h"
#include "app/jobs/write.h"
#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"
#include "models/files/atomic_file.h"
#include "models/files/temporary.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChartScript =
#include "app/lab/measure/chart.gnuplot.inc"
    ;
constexpr const char* kInstall = "install it (apt-get install gnuplot-nox)";
constexpr int kNotFound = 127;             // exit code of a shell for a missing program
constexpr size_t kCharactersOfALine = 56;  // characters of a line that fit into 8 cm

/// Replaces characters that gnuplot would take for the end of a text, an escape or a command.
std::string plain(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == '"' || c == '\'' || c == '\\' || c == '`'; }, ' ');
  return text;
}

std::string quoted(const std::string& text) {
  return '"' + plain(text) + '"';
}

/// Breaks the text at spaces into lines of at most kCharactersOfALine.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const std::string& word : split(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + word.size() >= kCharactersOfALine) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + plain(word);
  }
  return lines;
}

/// Builds the input of gnuplot: named values, then blocks of data, then the script.
class Input {
 public:
  Input(const fs::path& path, const std::string& caption) {
    std::string lines;
    for (const std::string& line : lines_of(caption)) lines += (lines.empty() ? "" : "\\n") + line;
    text_ = "caption = \"" + lines + "\"\nformat = " + quoted(path.extension().string().substr(1)) + "\n";
    for (const char* count : {"bars", "parts", "points", "curves", "frontier", "marks", "maps"}) set(count, 0);
    set("captions", static_cast<double>(lines_of(caption).size()));
  }

  void set(const std::string& name, double value) { text_ += name + " = " + exact_text(value) + "\n"; }
  void set(const std::string& name, const std::string& text) { text_ += name + " = " + quoted(text) + "\n"; }
  void begin(const std::string& block) { text_ += "$" + block + " << END_OF_DATA\n"; }
  void add(const std::string& line) { text_ += line + "\n"; }
  void end() { text_ += "END_OF_DATA\n"; }
  void block(const std::string& name, const std::vector<std::string>& lines) {
    begin(name);
    for (const std::string& line : lines) add(line);
    end();
  }
  /// Quotes the name of a curve or a bar. The length of the longest name decides in which font size names are drawn.
  std::string named(const std::string& name) {
    longest_ = std::max(longest_, name.size());
    return quoted(name);
  }
  std::string text() const { return text_ + "longest = " + std::to_string(longest_) + "\n" + kChartScript; }

 private:
  std::string text_;
  size_t longest_ = 0;
};

std::string point_line(const Curve::Point& point) {
  return exact_text(point.x) + " " + exact_text(point.y);
}

/// Runs gnuplot and returns the picture's bytes. Throws Error naming `path` if gnuplot is missing or fails.
std::string drawn(const fs::path& path, const Input& input) {
  const models::Temporary folder(fs::temp_directory_path() / "sparsereel-chart", models::Temporary::Kind::folder);
  const fs::path script = folder.path() / "chart.gnuplot", errors = folder.path() / "errors";
  models::AtomicFile file(script);
  const std::string text = input.text();
  file.write(text.data(), text.size());
  file.commit();
  const std::string command = "gnuplot " + shell_quoted(script) + " 2> " + shell_quoted(errors);
  // Read the picture through a pipe, so that this program writes the file and can report a full disk.
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr)
    throw run_failure(
        path.string() + " is not drawn: gnuplot could not be started: " + std::generic_category().message(errno),
        "end other programs, then draw the report with 'sparsereel bench plot'");
  std::string picture;
  std::array<char, 4096> part{};
  while (const size_t bytes = std::fread(part.data(), 1, part.size(), output)) picture.append(part.data(), bytes);
  const int status = pclose(output);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound)
    throw bad_input(path.string() + " is not drawn: gnuplot is not installed",
                    std::string(kInstall) + "; 'sparsereel bench plot' draws a report without measuring again");
  if (status == 0 && !picture.empty()) return picture;
  throw run_failure(path.string() + " is not drawn: gnuplot ended with an error",
                    "use gnuplot 5.4 or newer; 'gnuplot --version' shows yours");
}

bool is_chart(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".png" || ending == ".svg" || ending == ".pdf";
}

void check_ending(const std::string& option, const fs::path& path) {
  if (!is_chart(path))
    throw Error(ErrorKind::bad_input, option + " " + path.string() + " is not a .png, .svg or .pdf",
                "name a file that ends in one of them", {.file = path.string()});
}

void write(const fs::path& path, const Input& input) {
  const std::string picture = drawn(path, input);
  models::AtomicFile file(path);
  file.write(picture.data(), picture.size());
  file.commit();
}

bool has_point(const PlotRow& row) {
  return row.speedup && row.quality;
}

}  // namespace

void check_chart(const std::string& option, const fs::path& path) {
  check_ending(option, path);
  const models::AtomicFile probe(path);
  if (std::system("command -v gnuplot > /dev/null 2>&1") != 0)
    print_warnings({option + " " + path.string() + " cannot be drawn without gnuplot: " + kInstall});
}

void write_plot(const fs::path& path, const PlotData& data) {
  check_ending("the chart", path);
  Input input(path, data.title);
  std::vector<std::string> bars, points;
  for (const PlotRow& row : data.rows) {
    std::vector<double> parts = row.parts.empty() ? std::vector<double>{row.total} : row.parts;
    parts.resize(std::max<size_t>(1, data.parts.size()));
    bars.push_back(input.named(row.name) + " " + exact_text(row.total));
    for (const double part : parts) bars.back() += " " + exact_text(std::max(part, 0.0));
    if (has_point(row))
      points.push_back(quoted(std::to_string(bars.size())) + " " + point_line({{}, *row.speedup, *row.quality}));
  }
  std::string names;
  for (const std::string& part : data.parts) names += (names.empty() ? "" : " ") + part;
  input.set("part_names", names);
  input.set("parts", static_cast<double>(std::max<size_t>(1, data.parts.size())));
  input.set("unit", data.unit);
  input.set("y_label", data.quality);
  input.set("bars", static_cast<double>(bars.size()));
  input.set("points", static_cast<double>(points.size()));
  input.block("bars", bars);
  input.block("points", points);
  write(path, input);
}

void write_curves(const fs::path& path, const std::vector<CurvesData>& data) {
  check_ending("the chart", path);
  std::string captions;
  for (const CurvesData& each : data)
    if (captions.find(each.title) == std::string::npos) captions += (captions.empty() ? "" : "; ") + each.title;
  Input input(path, captions);
  const CurvesData& first = data.front();
  input.set("x_label", first.x);
  input.set("y_label", first.y);
  input.set("logarithmic", first.logarithmic ? 1 : 0);
  input.set("joined", first.joined ? 1 : 0);
  std::vector<std::string> curves, frontier, marks, names;
  int count = 0;
  for (const CurvesData& each : data) {
    for (const Curve& curve : each.curves) {
      if (count++ > 0) curves.insert(curves.end(), {"", ""});
      curves.push_back(input.named(curve.name));
      for (const Curve::Point& point : curve.points) curves.push_back(quoted(point.label) + " " + point_line(point));
    }
    if (!frontier.empty() && !each.frontier.empty()) frontier.emplace_back();
    for (const Curve::Point& point : each.frontier) frontier.push_back(point_line(point));
    if (!each.mark) continue;
    marks.push_back(point_line({{}, *each.mark, each.curves.front().points.front().y}));
    names.push_back(plain(each.mark_name));
  }
  input.set("curves", count);
  input.set("frontier", frontier.empty() ? 0 : 1);
  input.set("marks", static_cast<double>(marks.size()));
  input.block("curves", curves);
  input.block("frontier", frontier);
  input.block("marks", marks);
  input.block("mark_names", names);
  write(path, input);
}

void write_heat_maps(const fs::path& path, const std::string& caption, const std::vector<HeatMap>& maps) {
  check_ending("the heat map", path);
  Input input(path, caption);
  std::vector<std::string> lines, titles, axes;
  for (const HeatMap& map : maps) {
    if (map.values.empty()) continue;
    if (!lines.empty()) lines.insert(lines.end(), {"", ""});
    size_t columns = 0;
    for (const std::vector<double>& row : map.values) columns = std::max(columns, row.size());
    for (const std::vector<double>& row : map.values) {
      std::string& line = lines.emplace_back();
      for (size_t i = 0; i < columns; ++i)
        line += (i == 0 ? "" : " ") + (i < row.size() && !std::isnan(row[i]) ? exact_text(row[i]) : "NaN");
    }
    titles.push_back(plain(map.title));
    axes.push_back(map.rows + " " + map.columns + " " + std::to_string(map.values.size()) + " " +
                   std::to_string(columns));
  }
  if (titles.empty())
    throw run_failure(path.string() + " is not drawn: no row leaves out blocks",
                      "see in the notes of the table why the sparse rows failed");
  input.set("maps", static_cast<double>(titles.size()));
  input.block("map_titles", titles);
  input.block("map_axes", axes);
  input.block("maps", lines);
  write(path, input);
}

}  // namespace sparsereel::app
