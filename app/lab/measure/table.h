// Tables of results: rows are objects of a report, and one list of columns says how every format shows their fields.
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

/// By the names of columns: texts, numbers, lists of them, or null where nothing is known.
using Row = nlohmann::json;
using Rows = std::vector<Row>;

enum class Shown { everywhere, in_csv, to_people };

/// A field of the rows.
struct Column {
  std::string key;           // of the field, and the head in CSV
  std::string title;         // the head in Markdown
  int digits = 0;            // significant ones of a fraction for people; 0: all
  std::string unit = {};     // of the field: "ms", "dB"; empty: none
  std::string meaning = {};  // a sentence without a full stop
  bool is_choice = false;    // what somebody asked for, in place of what was measured
  Shown shown = Shown::everywhere;
  bool varying = false;                              // not for people where all rows say the same
  std::string usual = {};                            // where all rows say this, if it is not empty
  std::string beside = {};                           // another field, without which this one says nothing
  std::function<std::string(const Row&)> text = {};  // for people, in place of the field
};
using Columns = std::vector<Column>;

/// The columns of these keys: a key has one title, unit and meaning in every table. columns.cpp declares them; other
/// options of `generate` are explained by their help. Throws Error for another key.
Columns columns(const std::vector<std::string>& keys);
/// The same, but not for people where all rows say the same; for CSV alone; with this text, for people alone; and under
/// another title (and meaning, unless it is empty).
Columns varying(const std::vector<std::string>& keys);
Columns in_csv(const std::vector<std::string>& keys);
Column to_people(const std::string& key, std::function<std::string(const Row&)> text);
Column titled(const std::string& key, const std::string& title, const std::string& meaning = {});

/// One list of several.
Columns joined(const std::vector<Columns>& lists);
/// The fields key + "_lower_quartile" and key + "_upper_quartile" of a row in one column for people.
Column quartiles_column(const std::string& key);
/// "ms" under this title, its quartiles and its extremes.
Columns time_columns(const std::string& title);
/// The fields of time_columns(); null where nothing was measured.
Row time_fields(const std::optional<Spread>& milliseconds);

/// Columns that are empty in every row are left out. aligned: each is of one width, numbers to the right.
std::string markdown(const Columns& columns, const Rows& rows, bool aligned = false);
/// A list of what the figures of that table mean, behind an empty line.
std::string explained(const Columns& columns, const Rows& rows);
/// RFC 4180, every column with all digits.
std::string csv(const Columns& columns, const Rows& rows);

/// `digits` significant digits, for people.
std::string number_text(double value, int digits);

enum class Format { markdown, csv, json };

/// Of --format and --output.
struct TableOptions {
  std::optional<std::string> format = {};
  std::string output = {};  // empty: stdout
};
void add_table_options(const OptionGroup& group, TableOptions& options);

/// Throws Error for a format other than md, csv and json. Without one the ending of the output decides, .md and .txt
/// being Markdown like none; Error for others.
Format parse_format(const TableOptions& options);

/// Where a benchmark's rows go.
class TableOutput {
 public:
  /// Opens the file: what cannot be written ends the run before it begins. Throws as parse_format().
  explicit TableOutput(const TableOptions& options);

  /// Whether people read the table on a terminal.
  bool aligned() const;
  /// Writes the rows to the file, or prints them unless the report is printed: as `for_people`, or by their columns, or
  /// all that the report holds. CSV has the machine, the video's size, steps and seed of the report in each row; the
  /// report gets `columns`, the title, unit and meaning of each. Comes before what may fail, a full disk for the report
  /// among it.
  void deliver(std::string for_people, const Columns& columns, const Rows& rows, RunReport& report);

 private:
  std::string name_;
  Format format_;
  std::optional<models::AtomicFile> file_;
};

}  // namespace sparsereel::app
