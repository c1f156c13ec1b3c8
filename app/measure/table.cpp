// Numbers, Markdown and CSV as text.
#include "app/measure/table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "app/counted.h"

namespace sparsereel::app {
namespace {

std::string markdown_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return " " + cell + " |";
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) text += ',';
    text += csv_field(field);
  }
  return text + "\n";
}

/// "| a | b \\| c |" -> {"a", "b \\| c"}
std::vector<std::string> cells_in(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t begin = 1, end = 1; end < line.size(); ++end) {
    if (line[end] != '|' || line[end - 1] == '\\') continue;
    std::string cell = line.substr(begin, end - begin);
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    cells.push_back(cell);
    begin = end + 1;
  }
  return cells;
}

/// Characters of UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool is_figure(const std::string& cell) {
  return cell.empty() || std::isdigit(static_cast<unsigned char>(cell.front())) != 0 || cell.front() == '-';
}

/// rows: the head, the line below it, and the others.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
  const size_t columns = rows.front().size();
  std::vector<size_t> widths(columns, 3);
  std::vector<bool> figures(columns, true);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t column = 0; column < std::min(columns, rows[row].size()); ++column) {
      if (row != 1) widths[column] = std::max(widths[column], width_of(rows[row][column]));
      if (row > 1) figures[column] = figures[column] && is_figure(rows[row][column]);
    }
  }
  std::string text;
  for (size_t row = 0; row < rows.size(); ++row) {
    text.push_back('|');
    for (size_t column = 0; column < columns; ++column) {
      const std::string cell = column < rows[row].size() ? rows[row][column] : "";
      const size_t air = widths[column] - std::min(widths[column], width_of(cell));
      if (row == 1)
        text.append(1, ' ').append(widths[column] - 1, '-').append(figures[column] ? ": |" : "- |");
      else
        text.append(figures[column] ? air + 1 : 1, ' ').append(cell).append(figures[column] ? 1 : air + 1, ' ') += '|';
    }
    text.push_back('\n');
  }
  return text;
}

}  // namespace

std::string aligned(const std::string& text) {
  std::string result;
  std::vector<std::vector<std::string>> table;
  const auto end_table = [&] {
    if (!table.empty()) result += aligned_table(table);
    table.clear();
  };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("|")) {
      table.push_back(cells_in(line));
      continue;
    }
    end_table();
    result += line + "\n";
  }
  end_table();
  return result;
}

std::string number_text(double value, int digits, Style style) {
  if (style == Style::programs) return nlohmann::json(value).dump();
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

std::string chosen_text(double value) {
  std::array<char, 32> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

nlohmann::json or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json or_null(const std::string& text) {
  return text.empty() ? nlohmann::json(nullptr) : nlohmann::json(text);
}

std::string text_of(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<double> number_of(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::optional<double> of_spread(const std::optional<Spread>& spread, double Spread::*member) {
  return spread ? std::optional((*spread).*member) : std::nullopt;
}

std::string quartiles_text(const Spread& spread) {
  return number_text(spread.lower_quartile, 4, Style::people) + "-" +
         number_text(spread.upper_quartile, 4, Style::people);
}

nlohmann::json spread_fields(const std::optional<Spread>& milliseconds) {
  return {{"ms", or_null(of_spread(milliseconds, &Spread::median))},
          {"ms_lower_quartile", or_null(of_spread(milliseconds, &Spread::lower_quartile))},
          {"ms_upper_quartile", or_null(of_spread(milliseconds, &Spread::upper_quartile))},
          {"ms_min", or_null(of_spread(milliseconds, &Spread::least))},
          {"ms_max", or_null(of_spread(milliseconds, &Spread::most))}};
}

std::string markdown_table(const std::vector<std::string>& titles, const std::vector<std::vector<std::string>>& cells) {
  std::string head = "|", line = "|";
  std::vector<std::string> lines(cells.size(), "|");
  for (size_t column = 0; column < titles.size(); ++column) {
    const auto empty = [column](const std::vector<std::string>& row) { return row[column].empty(); };
    if (std::all_of(cells.begin(), cells.end(), empty)) continue;
    head += markdown_cell(titles[column]);
    line += "---|";
    for (size_t row = 0; row < cells.size(); ++row) lines[row] += markdown_cell(cells[row][column]);
  }
  std::string text = head + "\n" + line + "\n";
  for (const std::string& row : lines) text += row + "\n";
  return text;
}

std::string csv_table(const std::vector<std::string>& names, const std::vector<std::vector<std::string>>& cells) {
  std::string text = csv_line(names);
  for (const std::vector<std::string>& row : cells) text += csv_line(row);
  return text;
}

}  // namespace sparsereel::app
