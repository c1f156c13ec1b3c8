// Tables of results: one list of columns serves Markdown and CSV, whatever a row is.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/measure/timing.h"

namespace sparsereel::app {

/// A cell's text for people (few digits) or for programs.
enum class Style { people, programs };

/// `digits` significant digits for people; programs get every digit.
std::string number_text(double value, int digits, Style style);

/// A number that somebody chose, with every digit that it has: "0.15", "16".
std::string chosen_text(double value);

nlohmann::json or_null(const std::optional<double>& value);
/// An empty text is null.
nlohmann::json or_null(const std::string& text);
/// A text of a report's row; empty where it holds none.
std::string text_of(const nlohmann::json& row, const char* key);
/// A number of a report's row, if it holds one.
std::optional<double> number_of(const nlohmann::json& row, const char* key);

std::optional<double> of_spread(const std::optional<Spread>& spread, double Spread::*member);
/// "1.21-1.35", for people.
std::string quartiles_text(const Spread& spread);
/// "ms", its quartiles and its extremes; null where nothing was measured.
nlohmann::json spread_fields(const std::optional<Spread>& milliseconds);

/// One string a column, and one a cell in `cells[row][column]`. Markdown leaves columns out that are empty in every
/// row; CSV (RFC 4180) has them all.
std::string markdown_table(const std::vector<std::string>& titles, const std::vector<std::vector<std::string>>& cells);
/// Tables of markdown_table() within `text` with columns of one width each, numbers to the right.
std::string aligned(const std::string& text);
std::string csv_table(const std::vector<std::string>& names, const std::vector<std::vector<std::string>>& cells);

template <typename Row>
struct Column {
  std::string title;  // Markdown
  std::string name;   // CSV
  std::function<std::string(const Row&, Style)> cell;

  static Column number(const std::string& title, const std::string& name, int digits,
                       const std::function<std::optional<double>(const Row&)>& value) {
    return {title, name, [value, digits](const Row& row, Style style) {
              const std::optional<double> known = value(row);
              return known ? number_text(*known, digits, style) : std::string();
            }};
  }
  /// Of numbers that somebody chose.
  template <typename Value>
  static Column chosen(const std::string& title, const std::string& name, const Value& value) {
    return {title, name, [value](const Row& row, Style) {
              const auto known = value(row);
              return known ? chosen_text(static_cast<double>(*known)) : std::string();
            }};
  }
  static Column text(const std::string& title, const std::string& name,
                     const std::function<std::string(const Row&)>& value) {
    return {title, name, [value](const Row& row, Style) { return value(row); }};
  }
};

template <typename Row>
void append(std::vector<Column<Row>>& columns, const std::vector<Column<Row>>& more) {
  columns.insert(columns.end(), more.begin(), more.end());
}

/// CSV: quartiles and extremes of a row's `ms`.
template <typename Row>
std::vector<Column<Row>> spread_columns() {
  const auto column = [](const char* name, double Spread::*member) {
    return Column<Row>::number("", name, 0, [member](const Row& row) { return of_spread(row.ms, member); });
  };
  return {column("ms_lower_quartile", &Spread::lower_quartile), column("ms_upper_quartile", &Spread::upper_quartile),
          column("ms_min", &Spread::least), column("ms_max", &Spread::most)};
}

template <typename Row>
std::vector<std::vector<std::string>> cells_of(const std::vector<Row>& rows, const std::vector<Column<Row>>& columns,
                                               Style style) {
  std::vector<std::vector<std::string>> cells;
  cells.reserve(rows.size());
  for (const Row& row : rows) {
    std::vector<std::string>& line = cells.emplace_back();
    line.reserve(columns.size());
    for (const Column<Row>& column : columns) line.push_back(column.cell(row, style));
  }
  return cells;
}

template <typename Row>
std::string markdown_of(const std::vector<Row>& rows, const std::vector<Column<Row>>& columns) {
  std::vector<std::string> titles;
  titles.reserve(columns.size());
  for (const Column<Row>& column : columns) titles.push_back(column.title);
  return markdown_table(titles, cells_of(rows, columns, Style::people));
}

template <typename Row>
std::string csv_of(const std::vector<Row>& rows, const std::vector<Column<Row>>& columns) {
  std::vector<std::string> names;
  names.reserve(columns.size());
  for (const Column<Row>& column : columns) names.push_back(column.name);
  return csv_table(names, cells_of(rows, columns, Style::programs));
}

}  // namespace sparsereel::app
