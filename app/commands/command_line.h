// Holds the state of a command: the values of the options that it takes from option_table.h, the settings made from
// them, and the report.
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

/// The values of the shared options and of --config, and the settings made from them. A CommandLine must outlive the
/// parsing.
struct CommandLine {
  explicit CommandLine(RunReport& run_report) : report(run_report) {}

  std::map<std::string, std::string> values;  // values by option key
  std::string config;                         // --config
  Settings settings;                          // merged by collect()
  bool is_silent = false;                     // true on ranks other than rank 0, which print nothing
  /// The value of --report, empty if not given. Unset until a command that writes reports begins.
  std::optional<std::string> report_file;
  RunReport& report;

  /// Merges the settings. Throws Error like collect_settings().
  void collect(PresetUse use = PresetUse::whole);
  /// Returns the given options by key, including --config. If a launcher starts several ranks, shared_model.cpp
  /// compares these options between the ranks.
  std::map<std::string, std::string> given() const;
  /// Begins the report of the command `command`, such as "bench pipeline".
  void start(const char* command);
  /// Checks the files that the command's options in option_table.h name, and `files`, which its other options name.
  /// Throws Error like app::check_files().
  void check_files(Command command, std::vector<NamedFile> files) const;
};

/// Adds to `command` the options in option_table.h that `which` takes, and --config.
void add_shared_options(CLI::App& command, CommandLine& line, Command which);

}  // namespace sparsereel::app
