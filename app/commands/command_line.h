// The commands share this: the options of the table, the settings that these make, and the report.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/outputs.h"
#include "app/jobs/report.h"
#include "app/options/options.h"

namespace CLI {
class App;
}

namespace sparsereel::app {

/// The options of the table and --config, as the command line gives them, and what the command makes of them. It must
/// outlive the parsing.
struct CommandLine {
  explicit CommandLine(RunReport& run_report) : report(run_report) {}

  std::map<std::string, std::string> values;  // option key -> text
  std::string config;                         // --config
  Settings settings;                          // merged, once a command runs
  bool is_silent = false;                     // another rank speaks
  std::optional<std::string> report_file;     // --report of a command that has begun and writes one
  RunReport& report;

  /// Merges the settings. Throws Error as collect_settings().
  void collect(PresetUse use = PresetUse::whole);
  /// Returns what all ranks of a launcher must have been given alike.
  std::map<std::string, std::string> given() const;
  /// Begins the report of the command with this path: "bench pipeline".
  void start(const char* command);
  /// Checks the files that the command's options of the table name, and `files`, which other options name. Throws Error
  /// as app::check_files().
  void check_files(Command command, std::vector<NamedFile> files) const;
};

/// Adds the options of the table that `which` takes, and --config.
void add_shared_options(CLI::App& command, CommandLine& line, Command which);

}  // namespace sparsereel::app
