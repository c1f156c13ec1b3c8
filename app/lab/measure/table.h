// Tables of results. Rows are objects of a report; one list of columns says how each format shows their fields.
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

/// Values by column key: texts, numbers, lists of them, or null if unknown.
using Row = nlohmann::json;
using Rows = std::vector<Row>;

enum class Shown { everywhere, in_csv, to_people };

/// A field of the rows.
struct Column {
  std::string key;           // of the field; also the head in CSV
  std::string title;         // head in Markdown
  int digits = 0;            // significant digits of a fraction for people; 0 for all
  std::string unit = {};     // of the field: "ms", "dB"; empty if it has none
  std::string meaning = {};  // explanation of the field: a sentence without a full stop
  bool is_choice = false;    // the user chose the value; it was not measured
  Shown shown = Shown::everywhere;
  bool varying = false;     // hidden from people if all rows have the same value
  std::string usual = {};   // if set, hides the column only if all rows have this value
  std::string beside = {};  // key of another field; if the row lacks that field, this one is not shown
  std::function<std::string(const Row&)> text = {};  // text for people in place of the field
};
using Columns = std::vector<Column>;

/// Returns the columns of these keys. A key has one title, unit and meaning in every table. columns.cpp declares most
/// keys; help explains those that are options of `generate`. Throws Error for another key.
Columns columns(const std::vector<std::string>& keys);
/// These return columns() with a change. varying() hides a column from people if all rows have the same value. in_csv()
/// shows it only in CSV. to_people() shows it only to people, with this text. titled() replaces its title and, unless
/// `meaning` is empty, its meaning.
Columns varying(const std::vector<std::string>& keys);
Columns in_csv(const std::vector<std::string>& keys);
Column to_people(const std::string& key, std::function<std::string(const Row&)> text);
Column titled(const std::string& key, const std::string& title, const std::string& meaning = {});

Columns joined(const std::vector<Columns>& lists);
/// Returns a column for people that shows key + "_lower_quartile" and key + "_upper_quartile" of a row.
Column quartiles_column(const std::string& key);
/// Returns the columns of "ms" under this title, its quartiles and its extremes.
Columns time_columns(const std::string& title);
/// Returns the fields of time_columns(); null if nothing was measured.
Row time_fields(const std::optional<Spread>& milliseconds);

/// Returns a Markdown table without columns that are empty in every row. `aligned`: pad cells to equal width, numbers
/// to the right.
std::string markdown(const Columns& columns, const Rows& rows, bool aligned = false);
/// Returns a list that explains the figures of the Markdown table, after an empty line.
std::string explained(const Columns& columns, const Rows& rows);
/// Returns CSV as in RFC 4180, every column with all digits.
std::string csv(const Columns& columns, const Rows& rows);

/// Returns the value with `digits` significant digits, for people.
std::string number_text(double value, int digits);

enum class Format { markdown, csv, json };

/// The values of --format and --output.
struct TableOptions {
  std::optional<std::string> format = {};
  std::string output = {};  // empty for stdout
};
/// `command` begins the examples: "sparsereel bench quality prompts.txt ".
void add_table_options(const OptionGroup& group, TableOptions& options, const std::string& command);

/// Returns the format. Throws Error unless it is md, csv or json. If it is not given, the output's extension decides:
/// .md, .txt and none mean Markdown; others throw Error.
Format parse_format(const TableOptions& options);

/// Writes the rows of a benchmark.
class TableOutput {
 public:
  /// Opens the file, so that an unwritable one ends the run before it begins. Throws like parse_format().
  explicit TableOutput(const TableOptions& options);

  /// Returns true if people read the table on a terminal.
  bool aligned() const;
  /// Writes the rows to the file, or prints them unless the report is printed. Markdown writes `for_people`, CSV the
  /// rows by their columns, and JSON the whole report. In CSV each row also has the report's machine, video size, steps
  /// and seed. Adds `columns` to the report: title, unit and meaning of each. Call it before anything that may fail,
  /// such as writing the report to a full disk.
  void deliver(std::string for_people, const Columns& columns, const Rows& rows, RunReport& report);

 private:
  std::string name_;
  Format format_;
  std::optional<models::AtomicFile> file_;
};

}  // namespace sparsereel::app
