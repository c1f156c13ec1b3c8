// Makes CLI11 options from the option table.
#include "app/commands/command_line.h"

#include <CLI/CLI.hpp>

#include "app/options/option_group.h"

namespace sparsereel::app {
namespace {

/// Returns the placeholder of the option's value in --help: the choices, or a word for the kind of value.
std::string type_name_of(const OptionSpec& spec) {
  std::string choices;
  for (const std::string& choice : spec.choices) choices += (choices.empty() ? "" : ",") + choice;
  return !choices.empty()                    ? choices
         : spec.kind() == ValueKind::file    ? "FILE"
         : spec.kind() == ValueKind::folder  ? "FOLDER"
         : spec.kind() == ValueKind::loras   ? "FILE[:SCALE]"
         : spec.kind() == ValueKind::whole   ? "N"
         : spec.kind() == ValueKind::seed    ? "N"
         : spec.kind() == ValueKind::size    ? "WxH|Np"
         : spec.kind() == ValueKind::number  ? "X"
         : spec.kind() == ValueKind::numbers ? "X,X,.."
                                             : "TEXT";
}

/// Returns the command's texts for the option. Options with InHelp::generate are in the --help of `generate` and
/// `batch`; other commands list them only in --help-all.
OptionText text_of(const OptionSpec& spec, Command command) {
  OptionText text = {.help = spec.help, .manual = spec.manual, .example = spec.example, .in_help = spec.in_help};
  const bool makes_videos = command == Command::generate || command == Command::batch;
  if (text.in_help == InHelp::generate) text.in_help = makes_videos ? InHelp::everywhere : InHelp::all;
  return text;
}

CLI::Option* add_shared_option(CLI::App& command, CommandLine& line, const OptionSpec& spec, Command which) {
  const std::string key = spec.key(), text = packed(text_of(spec, which));
  if (spec.kind() == ValueKind::flag)
    return command.add_flag_function(
        spec.names, [&line, key](int64_t count) { line.values[key] = count > 0 ? "true" : "false"; }, text);
  CLI::Option* option = command.add_option_function<std::string>(
      spec.names, [&line, key](const std::string& value) { line.values[key] = value; }, text);
  option->type_name(type_name_of(spec));
  if (spec.kind() == ValueKind::loras) option->join(',');
  if (!spec.bare.empty()) option->expected(0, 1);
  return option;
}

}  // namespace

void CommandLine::collect(PresetUse use) {
  // Set this first: a report is written even if collect_settings() throws for a wrong value.
  report_file = values.contains("report") ? values.at("report") : "";
  collect_settings(settings, values, config, use);
}

std::map<std::string, std::string> CommandLine::given() const {
  std::map<std::string, std::string> all = values;
  all["config"] = config;
  return all;
}

void CommandLine::start(const char* command) {
  start_report(settings.text("report", ""), settings.flag("json"), command, report);
}

void CommandLine::check_files(Command command, std::vector<NamedFile> files) const {
  for (const NamedFile& file : files_of(command, settings)) files.push_back(file);
  files.push_back({"--config", config});
  app::check_files(files, settings);
}

void add_shared_options(CLI::App& command, CommandLine& line, Command which) {
  for (const OptionSpec& spec : option_table())
    if (takes(which, spec))
      add_shared_option(command, line, spec, which)->group(spec.in_help == InHelp::research ? kResearch : spec.group);
  OptionGroup(command, kOtherOptions)
      .add("--config", line.config,
           {.help = "read options from this YAML file",
            .manual = R"(Reads options from a YAML file: a map whose keys are the long names, with _ in place of -.
                The command line and the rows of a prompt set win over it; it wins over profiles, recipes and presets.
                'sparsereel config show' prints every value with its source, and its output is itself such a
                file.)",
            .example = "sparsereel generate --config my.yaml -o star.mp4"},
           "FILE");
}

}  // namespace sparsereel::app
