// Tables of results. A row is a JSON object, as in the report. A list of columns says how each format shows the fields
// of rows.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/report.h"
#include "app/json_fields.h"
#include "app/lab/measure/timing.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {

class OptionGroup;

/// An object with a value for each column key: a text, a number, a list, or null if unknown.
using Row = nlohmann::json;
using Rows = std::vector<Row>;

/// Says which tables show a column: all, only CSV, or only Markdown ("to people").
enum class Shown { everywhere, in_csv, to_people };

/// A column of a table, which shows a field of the rows.
struct Column {
  std::string key;           // key of the field in rows; also the head of the column in CSV
  std::string title;         // head of the column in Markdown
  int digits = 0;            // significant digits of a fraction in Markdown; 0 for all
  std::string unit = {};     // unit of the values: "ms", "dB"; empty if there is none
  std::string meaning = {};  // explanation of the values, without a full stop
  bool is_choice = false;    // true if the user chose the value; false if it was measured
  Shown shown = Shown::everywhere;
  bool varying = false;     // Markdown hides the column if all rows have the same value
  std::string usual = {};   // if set, Markdown hides the column only if all rows have this value
  std::string beside = {};  // key of another field; in rows without it, Markdown leaves this cell empty
  std::function<std::string(const Row&)> text = {};  // text of the cell in Markdown, in place of the value
};
using Columns = std::vector<Column>;

/// Returns the columns of these keys. A key has the same title, unit and meaning in every table, unless titled()
/// replaces them. columns.cpp declares most keys; the meaning of a key that is an option of `generate` is the option's
/// help. Throws Error for an unknown key.
Columns columns(const std::vector<std::string>& keys);
/// These functions return columns() with a change. varying() hides a column in Markdown if all rows have the same
/// value. in_csv() shows it only in CSV. to_people() shows it only in Markdown, with this text. titled() replaces its
/// title and, unless `meaning` is empty, its meaning.
Columns varying(const std::vector<std::string>& keys);
Columns in_csv(const std::vector<std::string>& keys);
Column to_people(const std::string& key, std::function<std::string(const Row&)> text);
Column titled(const std::string& key, const std::string& title, const std::string& meaning = {});

Columns joined(const std::vector<Columns>& lists);
/// Returns a column for Markdown that shows the fields key + "_lower_quartile" and key + "_upper_quartile" of a row.
Column quartiles_column(const std::string& key);
/// Returns columns for "ms" with this title, and for its quartiles, least and largest value.
Columns time_columns(const std::string& title);
/// Returns the fields of time_columns(); null if nothing was measured.
Row time_fields(const std::optional<Spread>& milliseconds);

/// Returns a Markdown table without columns that are empty in every row. If `aligned`, cells are padded to equal width,
/// with numbers to the right.
std::string markdown(const Columns& columns, const Rows& rows, bool aligned = false);
/// Returns an empty line and a list that explains the figures of the Markdown table.
std::string explained(const Columns& columns, const Rows& rows);
/// Returns CSV with the quotes of RFC 4180, but with lines that end in a line feed. It has every column except those
/// only for people, with all digits.
std::string csv(const Columns& columns, const Rows& rows);

/// Returns the value with `digits` significant digits, for people.
std::string number_text(double value, int digits);

enum class Format { markdown, csv, json };

/// The values of --format and --output.
struct TableOptions {
  std::optional<std::string> format = {};
  std::string output = {};  // empty for stdout
};
/// Adds --format and --output. `command` begins their examples: "sparsereel bench quality prompts.txt ".
void add_table_options(const OptionGroup& group, TableOptions& options, const std::string& command);

/// Returns the format. Throws Error unless it is md, csv or json. If it is not given, the extension of the output
/// decides: .csv, .json, or .md, .txt and no extension for Markdown. Throws Error for other extensions.
Format parse_format(const TableOptions& options);

/// Writes the rows of a benchmark.
class TableOutput {
 public:
  /// Opens the file, so that a file that cannot be written ends the run before anything is measured. Throws like
  /// parse_format().
  explicit TableOutput(const TableOptions& options);

  /// Returns true if the table goes to a terminal, where aligned cells help people.
  bool aligned() const;
  /// Writes the table to the file, or prints it unless the report is printed. As Markdown it is the text `for_people`,
  /// as CSV the rows by their columns, and as JSON the whole report. In CSV each row also has the report's machine,
  /// video size, steps and seed. Adds `columns` to the report: title, unit and meaning of each. Call it before anything
  /// that may fail, such as writing the report to a full disk.
  void deliver(std::string for_people, const Columns& columns, const Rows& rows, RunReport& report);

 private:
  std::string name_;
  Format format_;
  std::optional<models::AtomicFile> file_;
};

}  // namespace sparsereel::app
