// Formats rows as Markdown and CSV, and writes the table in the chosen format.
#include "app/lab/measure/table.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "app/counted.h"
#include "app/options/nearest.h"
#include "app/options/option_group.h"
#include "hilbert/exact_text.h"

namespace sparsereel::app {
namespace {

const Row& field_of(const Row& row, const std::string& name) {
  static const Row unknown;
  const auto found = row.find(name);
  return found == row.end() ? unknown : *found;
}

/// Joins a list: [1, 4, 2336, 64] becomes "1,4,2336,64".
std::string items_of(const Row& list) {
  std::string text;
  for (const Row& item : list) text += (text.empty() ? "" : ",") + item.dump();
  return text;
}

std::string cell(const Column& column, const Row& row, bool people) {
  if (people && column.text) return column.text(row);
  const Row& value = field_of(row, column.key);
  if (value.is_null() || (!column.beside.empty() && field_of(row, column.beside).is_null())) return {};
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_array()) return items_of(value);
  if (value.is_number_integer()) return value.dump();
  if (column.digits == 0) return exact_text(value.get<double>());
  return people ? number_text(value.get<double>(), column.digits) : value.dump();
}

std::vector<std::string> cells(const Column& column, const Rows& rows, bool people) {
  std::vector<std::string> texts;
  for (const Row& row : rows) texts.push_back(cell(column, row, people));
  return texts;
}

/// Returns true if Markdown shows the column, whose cells have these texts.
bool is_shown(const Column& column, const std::vector<std::string>& texts) {
  const bool same = std::adjacent_find(texts.begin(), texts.end(), std::not_equal_to()) == texts.end();
  if (column.shown == Shown::in_csv || (same && (texts.empty() || texts.front().empty()))) return false;
  return !same || !column.varying || (!column.usual.empty() && texts.front() != column.usual);
}

std::string markdown_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// Returns the number of UTF-8 characters.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool is_figure(const std::string& cell) {
  return cell.empty() || std::isdigit(static_cast<unsigned char>(cell.front())) != 0 || cell.front() == '-';
}

/// Returns a cell of a Markdown table, padded to at least this width. Figures are aligned to the right.
std::string padded(const std::string& text, size_t width, bool figures) {
  const std::string air(width - std::min(width, width_of(text)), ' ');
  return " " + (figures ? air + text : text + air) + " |";
}

}  // namespace

Columns joined(const std::vector<Columns>& lists) {
  Columns all;
  for (const Columns& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Column quartiles_column(const std::string& key) {
  Column column = to_people(key, [key](const Row& row) -> std::string {
    const auto lower = number_of(row, key + "_lower_quartile"), upper = number_of(row, key + "_upper_quartile");
    return lower && upper && *lower < *upper ? number_text(*lower, 4) + "-" + number_text(*upper, 4) : "";
  });
  column.title = "quartiles";
  column.meaning = "half of the times lie between them";
  return column;
}

Columns time_columns(const std::string& title) {
  return joined({Columns{titled("ms", title)}, in_csv({"ms_lower_quartile", "ms_upper_quartile", "ms_min", "ms_max"}),
                 Columns{quartiles_column("ms")}});
}

Row time_fields(const std::optional<Spread>& milliseconds) {
  const auto field = [&](double Spread::*member) { return milliseconds ? Row((*milliseconds).*member) : Row(); };
  return {{"ms", field(&Spread::median)},
          {"ms_lower_quartile", field(&Spread::lower_quartile)},
          {"ms_upper_quartile", field(&Spread::upper_quartile)},
          {"ms_min", field(&Spread::least)},
          {"ms_max", field(&Spread::most)}};
}

std::string markdown(const Columns& columns, const Rows& rows, bool aligned) {
  std::vector<std::string> lines(rows.size(), "|");
  std::string head = "|", line = "|";
  for (const Column& column : columns) {
    std::vector<std::string> texts = cells(column, rows, true);
    if (!is_shown(column, texts)) continue;
    size_t width = std::max<size_t>(3, width_of(column.title));
    for (std::string& text : texts) width = std::max(width, width_of(text = markdown_cell(text)));
    if (!aligned) width = 0;
    const bool figures = std::ranges::all_of(texts, is_figure);
    head += padded(column.title, width, figures);
    line += aligned ? " " + std::string(width - 1, '-') + (figures ? ": |" : "- |") : "---|";
    for (size_t row = 0; row < rows.size(); ++row) lines[row] += padded(texts[row], width, figures);
  }
  std::string text = head + "\n" + line + "\n";
  for (const std::string& each : lines) text += each + "\n";
  return text;
}

std::string explained(const Columns& columns, const Rows& rows) {
  std::string text;
  for (const Column& column : columns)
    if (!column.is_choice && is_shown(column, cells(column, rows, true)))
      text += (text.empty() ? "\n- " : "- ") + column.title + ": " + column.meaning + "\n";
  return text;
}

std::string csv(const Columns& columns, const Rows& rows) {
  std::vector<std::string> lines(rows.size() + 1);
  const char* comma = "";
  for (const Column& column : columns) {
    if (column.shown == Shown::to_people) continue;
    std::vector<std::string> texts = cells(column, rows, false);
    texts.insert(texts.begin(), column.key);
    for (size_t i = 0; i < lines.size(); ++i) lines[i] += comma + csv_field(texts[i]);
    comma = ",";
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string number_text(double value, int digits) {
  double size = std::abs(value);
  if (size > 0 && size < 1e-4) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.*e", digits - 1, value);
    return text.data();
  }
  int decimals = digits - 1;
  for (; size >= 10 && decimals > 0; size /= 10) --decimals;
  for (; size > 0 && size < 1; size *= 10) ++decimals;
  return fixed(value, decimals);
}

namespace {

/// Returns an object that describes the columns by key: {"psnr": {"title": "PSNR dB", "unit": "dB", "meaning": "..."},
/// ...}.
Row descriptions(const Columns& columns) {
  Row all = Row::object();
  for (const Column& column : columns)
    if (column.shown != Shown::to_people)
      all[column.key] = {{"title", column.title}, {"unit", column.unit}, {"meaning", column.meaning}};
  return all;
}

/// Returns CSV in which each row also has the values that distinguish runs, so that files of several runs can be
/// joined.
std::string csv_of_run(Columns columns, Rows rows, const nlohmann::json& report) {
  const Row settings = report.value("settings", Row::object());
  std::string size;
  for (const char* key : {"width", "height", "frames"})
    if (settings.contains(key)) size += (size.empty() ? "" : "x") + settings[key].dump();
  Row run = {{"machine", text_of(report.value("machine", Row::object()), "name")}, {"size", size}};
  for (const char* key : {"steps", "seed"}) run[key] = settings.value(key, Row());
  for (const char* key : {"machine", "size", "steps", "seed"}) columns.push_back({.key = key, .title = key});
  for (Row& row : rows) row.update(run);
  return csv(columns, rows);
}

}  // namespace

void add_table_options(const OptionGroup& group, TableOptions& options, const std::string& command) {
  group.add(
      "--format", options.format,
      {.help = "format of the table (default: by the output's ending, else md)",
       .manual = R"(Sets the format of the table. md is Markdown for people, with medians; csv also has quartiles and
           all digits; json is the whole report. Without this option, the ending of --output decides.)",
       .example = command + "--format csv",
       .in_help = InHelp::all},
      "md,csv,json");
  group.add(
      "-o,--output", options.output,
      {.help = "write the table to this file (default: print it)",
       .manual = R"(Writes the table to a file in place of standard output. The ending .md, .csv or .json chooses the
           format.)",
       .example = command + "-o table.md"},
      "FILE");
}

Format parse_format(const TableOptions& options) {
  const std::string ending = std::filesystem::path(options.output).extension().string();
  const std::vector<std::string> known = {"", ".md", ".txt", ".csv", ".json"};
  if (!options.format && std::find(known.begin(), known.end(), ending) == known.end())
    throw bad_input("--output " + options.output + ": " + ending + " is not the ending of a table",
                    did_you_mean(ending, known, "use .md, .csv or .json, or choose the format with --format"));
  const std::string text = options.format.value_or(ending == ".csv" ? "csv" : ending == ".json" ? "json" : "md");
  require_choice("--format " + text, text, {"md", "csv", "json"}, "give one of them");
  return text == "csv" ? Format::csv : text == "json" ? Format::json : Format::markdown;
}

TableOutput::TableOutput(const TableOptions& options) : name_(options.output), format_(parse_format(options)) {
  if (!name_.empty()) file_.emplace(name_);
}

bool TableOutput::aligned() const {
  return !file_ && isatty(STDOUT_FILENO) == 1;
}

void TableOutput::deliver(std::string for_people, const Columns& columns, const Rows& rows, RunReport& report) {
  report.content["columns"] = descriptions(columns);
  std::string text = format_ == Format::csv    ? csv_of_run(columns, rows, report.content)
                     : format_ == Format::json ? dump(report.content, 2) + "\n"
                                               : std::move(for_people);
  if (file_) {
    file_->write(text.data(), text.size());
    file_->commit();
    text = name_ + ": " + counted(static_cast<int64_t>(rows.size()), "row") + "\n";
  }
  text.pop_back();  // the report adds the final newline
  report.last_line = std::move(text);
  show_last_line(report);
}

}  // namespace sparsereel::app
