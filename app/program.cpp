// Parses the command line, runs its command, and turns errors into messages and exit codes.
#include "app/program.h"

#include <c10/core/InferenceMode.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>

#include "app/called_program.h"
#include "app/clock.h"
#include "app/commands/commands.h"
#include "app/jobs/early_report.h"
#include "app/jobs/interrupt.h"
#include "app/options/choice_commands.h"
#include "app/options/command_tree.h"
#include "app/options/nearest.h"
#include "app/options/option_text.h"
#include "app/ranks/asked_ranks.h"
#include "app/ranks/children.h"
#include "app/ranks/shared_model.h"
#include "app/terminal.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/engine/failure.h"
#include "models/layers/cpu_threads.h"
#include "models/request/fields.h"

namespace sparsereel::app {
namespace {

constexpr const char* kSummary = "Makes videos from text and images, with fast sparse attention";

/// The commands in the order of --help.
constexpr std::array<void (*)(CLI::App&, CommandLine&), 11> kCommands = {
    add_generate, add_batch,  add_serve,      add_decode,    add_bench, add_tune,
    add_inspect,  add_config, add_completion, add_reference, add_doctor};

/// Rewrites each option whose value may be omitted into the form `--option=value`. The value is the next word if that
/// is one of the option's choices, else OptionSpec::bare. Without this, `--offload set.csv` would take the name of the
/// set as its value.
void complete_bare_options(std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const OptionSpec* spec = find_option(key_of_option(arguments[i]));
    if (spec == nullptr || spec->bare.empty()) continue;
    const bool has_next = i + 1 < arguments.size();
    if (has_next && (is_choice(arguments[i + 1], spec->choices) || is_choice(arguments[i + 1], spec->more_choices))) {
      arguments[i] += "=" + arguments[i + 1];
      arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(i) + 1);
    } else {
      arguments[i] += "=" + spec->bare;
    }
  }
}

/// Replaces _ with - in long names, completes bare options, and returns the arguments in reverse order for CLI11.
std::vector<std::string> normalized(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (argument.starts_with("--")) {
      const auto end = std::min(argument.find('='), argument.size());
      std::replace(argument.begin() + 2, argument.begin() + static_cast<ptrdiff_t>(end), '_', '-');
    }
  }
  complete_bare_options(arguments);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 reads a vector from its end
  return arguments;
}

/// Checks the values of flags, because CLI11's error for a wrong value is unhelpful.
void check_flags(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const size_t end = argument.find('=');
    if (!argument.starts_with("--") || end == std::string::npos) continue;
    const std::string name = argument.substr(0, end), value = argument.substr(end + 1);
    const auto is_named = [&](const OptionSpec& option) {
      return option.kind() == ValueKind::flag &&
             std::ranges::any_of(split(option.names, ','),
                                 [&](const std::string& each) { return each == name || each == "!" + name; });
    };
    if (std::ranges::none_of(option_table(), is_named)) continue;
    try {
      CLI::detail::to_flag_value(value);
    } catch (const std::exception&) {
      throw bad_input(name + " " + value + ": one of true, false is needed", "leave the value out");
    }
  }
}

class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* command, std::string, CLI::AppFormatMode mode) const override {
    return help_text(describe(*command), mode == CLI::AppFormatMode::All ? HelpLevel::all : HelpLevel::usual);
  }
};

/// Lets the last value of a repeated option win, because scripts append their options to those that they are given.
/// Options whose values are joined, such as --lora, are the exception.
void let_the_last_win(CLI::App& command) {
  for (CLI::Option* option : command.get_options([](const CLI::Option* each) { return !each->get_positional(); }))
    if (option->get_multi_option_policy() != CLI::MultiOptionPolicy::Join) option->take_last();
  for (CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; })) let_the_last_win(*below);
}

/// Adds the flags that every command has, and --version, which only the program has.
void add_general_flags(CLI::App& program) {
  program.set_help_flag("-h,--help", packed({.help = "list the usual options and stop",
                                             .manual = R"(Lists the options of the command that people use most, and
                                                 stops. Its last line says where to read about the others.)",
                                             .example = "sparsereel generate --help"}));
  program.set_help_all_flag("--help-all",
                            packed({.help = "list all options and stop",
                                    .manual = R"(Lists every option of the command with all of its names, and stops.
                                        The options that only researchers use have a heading of their own.)",
                                    .example = "sparsereel generate --help-all",
                                    .in_help = InHelp::all}));
  program.set_version_flag(
      "--version", std::string("sparsereel ") + SPARSEREEL_VERSION,
      packed({.help = "print the version and stop",
              .manual = "Prints the version of the program and stops. Reports hold the version too.",
              .example = "sparsereel --version"}));
}

}  // namespace

void add_commands(CLI::App& program, CommandLine& line) {
  program.name("sparsereel");
  program.description(kSummary);
  add_general_flags(program);
  program.formatter(std::make_shared<Help>());
  program.require_subcommand(1);
  for (const auto add : kCommands) add(program, line);
  let_the_last_win(program);
}

void parse_command_line(CLI::App& program, CommandLine& line, int argc, char** argv) {
  const c10::InferenceMode guard;
  try {
    std::vector<std::string> arguments = normalized(argc, argv);
    check_flags(arguments);
    program.parse(std::move(arguments));
  } catch (const CLI::Success& request) {  // --help, --help-all and --version
    program.exit(request, std::cout, std::cerr);
  } catch (const Error& error) {
    throw line.settings.with_place(error);
  } catch (const CLI::ParseError& error) {
    std::vector<std::string> words = normalized(argc, argv);
    std::reverse(words.begin(), words.end());
    const std::string missing = missing_command(program, words);
    const bool unused = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const std::string cause = unused ? unused_words(program) : missing.empty() ? error.what() : missing;
    throw bad_input(cause, command_line_remedy(program, words));
  }
}

namespace {

/// Notes in the report whether --json or --report was given, so that a run that fails before its report begins still
/// writes its JSON.
void ask_for_report(const CLI::App& program, const CommandLine& line, int argc, char** argv) {
  std::vector<std::string> words = normalized(argc, argv);
  std::reverse(words.begin(), words.end());
  const bool given = std::find(words.begin(), words.end(), "--json") != words.end();
  line.report.print = line.report.print || given || line.settings.flag("json");
  if (line.report.path.empty() && line.report_file)
    line.report.path = early_report(line.settings.text("report", *line.report_file), line.settings, words);
  line.report.content.emplace("version", SPARSEREEL_VERSION);
  line.report.content.emplace("command", describe(*named_command(program).first).path);
}

void run(int argc, char** argv, bool is_silent, RunReport& report) {
  CommandLine line(report);
  line.is_silent = is_silent;
  CLI::App program;
  add_commands(program, line);
  try {
    parse_command_line(program, line, argc, argv);
  } catch (...) {
    ask_for_report(program, line, argc, argv);
    throw;
  }
}

/// Prints the cause and the remedy of an error, and its choices as commands made from `words`, the user's arguments.
/// Then ends the report and returns `exit_code`, even if the report cannot be written.
int fail(RunReport& report, int exit_code, const std::string& cause, std::string remedy,
         const std::vector<ErrorChoice>& choices, const std::vector<std::string>& words) {
  remedy = choices.empty() ? as_called(remedy) : "run one of these commands";
  if (!report.recovery.empty()) remedy += (remedy.empty() ? "" : "; ") + report.recovery;
  std::cerr << (exit_code == 130 ? "interrupted: " : "error: ") << one_line(cause)
            << "\n  remedy: " << indented_lines(remedy) << "\n";
  print_choices(std::cerr, choices, words);
  if (!choices.empty()) report.content["choices"] = choices_report(choices, words);
  try {
    return finish(report, exit_code, cause, remedy);
  } catch (const Error& error) {
    std::cerr << "warning: " << one_line(error.what()) << "\n";
  }
  // The report's file could not be written. This second call only prints the report, if that was asked for.
  return finish(report, exit_code, cause, remedy);
}

/// Throws Error if output to stdout was lost, as on a full disk. A pipe whose reader has closed it is no failure.
void check_stdout() {
  std::cout.flush();
  const bool failed = !std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  struct stat output {};
  const bool piped = fstat(STDOUT_FILENO, &output) == 0 && (S_ISFIFO(output.st_mode) || S_ISSOCK(output.st_mode));
  if (failed && !piped)
    throw run_failure("standard output could not be written", "check that it is open, and that its disk has room");
}

int run_to_exit_code(int argc, char** argv, RunReport& report) {
  try {
    run(argc, argv, /*is_silent=*/false, report);
    const int exit_code = finish(report, 0);
    check_stdout();
    return exit_code;
  } catch (...) {
    const Error error = models::as_error(std::current_exception());
    const bool resumable = error.kind() == ErrorKind::cancelled && !report.recovery.empty();
    return fail(report, models::exit_code(error.kind()), error.what(), resumable ? "" : error.remedy(), error.choices(),
                {argv + 1, argv + argc});
  }
}

/// Runs the program in a rank that prints nothing, because rank 0 prints for all. With `last_words`, writes the cause
/// of a failure to stderr, where the process that started this rank reads it.
int run_silently(int argc, char** argv, bool last_words) {
  RunReport report;
  try {
    run(argc, argv, /*is_silent=*/true, report);
    return 0;
  } catch (...) {
    const Error error = models::as_error(std::current_exception());
    if (last_words) std::cerr << one_line(error.what()) << std::endl;
    return models::exit_code(error.kind());
  }
}

}  // namespace

int run_program(int argc, char** argv, const Additions& additions) {
  try {
    seconds_before_main();
    remember_call(argc, argv);
    const models::AllThreads threads;
    const auto started = find_started_rank(process_environment);
    if (started) live_no_longer_than(started->parent);
    for (const models::Family& family : additions.families) models::add_family(family);
    models::add_loaders(additions.loaders);
    for (const models::Field& field : additions.fields) models::add_field(field);
    if (started && is_follower(argc, argv)) {
      auto world = std::make_unique<World>(*started);
      const int code = follow(*world);
      // Rank 0 waits until this process ends. The process ends faster if NCCL does not release the GPU first, so do not
      // destroy the world.
      if (code == 0 && world->has_gpu()) static_cast<void>(world.release());
      return code;
    }
    if (started) return run_silently(argc, argv, /*last_words=*/true);
    const bool is_silent = argc > 0 && is_silent_rank(argv + 1, process_environment);
    install_signal_handlers(is_silent);
    if (is_silent) return run_silently(argc, argv, false);
    const PrintableOnly output(std::cout), errors(std::cerr);
    RunReport report;
    const int exit_code = run_to_exit_code(argc, argv, report);
    pass_on_last_words();
    return exit_code;
  } catch (...) {
    std::fputs("error: out of memory while reporting an error\n  remedy: free some memory\n", stderr);
  }
  return 1;
}

}  // namespace sparsereel::app
