// The program: subcommands, errors on stderr, and exit codes (0 done, 1 failed, 2 bad input, 130
// interrupted).
#include <c10/core/InferenceMode.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "app/command_tree.h"
#include "app/commands/batch.h"
#include "app/commands/bench_attention.h"
#include "app/commands/bench_pipeline.h"
#include "app/commands/bench_plot.h"
#include "app/commands/completion.h"
#include "app/commands/config.h"
#include "app/commands/decode.h"
#include "app/commands/doctor.h"
#include "app/commands/generate.h"
#include "app/commands/inspect.h"
#include "app/commands/reference.h"
#include "app/commands/tune.h"
#include "app/commands/tune/state.h"
#include "app/interrupt.h"
#include "app/outputs.h"
#include "hilbert/error.h"
#include "models/failure.h"

namespace sparsereel::app {
namespace {

/// What the command line gave.
struct Arguments {
  std::map<std::string, std::string> values;  // option key -> text
  std::string config;                         // --config
  std::string path;                           // of inspect and decode
  bool json = false;                          // of inspect
};

/// Long names may be written with _ for -.
std::vector<std::string> normalised(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (argument.starts_with("--")) {
      const auto end = std::min(argument.find('='), argument.size());
      std::replace(argument.begin() + 2, argument.begin() + static_cast<ptrdiff_t>(end), '_', '-');
    }
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  return arguments;
}

void add_options(CLI::App& command, Arguments& arguments, const std::vector<std::string>& keys) {
  for (const OptionSpec& spec : option_table()) {
    if (!keys.empty() && std::find(keys.begin(), keys.end(), spec.key) == keys.end()) continue;
    const std::string key = spec.key;
    CLI::Option* option = nullptr;
    if (spec.kind == ValueKind::flag) {
      option = command.add_flag_function(
          spec.names, [&arguments, key](int64_t count) { arguments.values[key] = count > 0 ? "true" : "false"; },
          spec.help);
    } else {
      option = command.add_option_function<std::string>(
          spec.names, [&arguments, key](const std::string& value) { arguments.values[key] = value; }, spec.help);
      std::string choices;
      for (const std::string& choice : spec.choices) choices += (choices.empty() ? "" : ",") + choice;
      option->type_name(!choices.empty()                 ? choices
                        : spec.kind == ValueKind::file   ? "FILE"
                        : spec.kind == ValueKind::whole  ? "N"
                        : spec.kind == ValueKind::number ? "X"
                                                         : "TEXT");
    }
    option->group(spec.group);
  }
  command.add_option("--config", arguments.config, "YAML file of options (keys: long names with _)")->type_name("FILE");
}

class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* command, std::string, CLI::AppFormatMode) const override {
    return help_text(describe(*command));
  }
};

/// What to do about a command line that CLI11 refuses.
std::string command_line_remedy(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* command = &program;
  size_t depth = 0;
  for (; !command->get_subcommands().empty(); ++depth) command = command->get_subcommands().front();
  const CommandInfo info = describe(*command);
  const std::vector<std::string> unused = command->remaining();
  // Where a command is missing, the word in its place is what was meant to be one.
  const bool missing = command->get_require_subcommand_min() > 0 && depth < words.size();
  const std::string wrong = !unused.empty() ? unused.front() : missing ? words[depth] : "";
  return suggest(info, wrong, "see 'sparsereel" + (info.path.empty() ? "" : " " + info.path) + " --help'");
}

std::string cause_of(const CLI::ParseError& error) {
  const std::string cause = error.what();
  const size_t count = cause.find(": At Most 1 required but received");
  return count == std::string::npos ? cause : cause.substr(0, count) + " is given more than once";
}

void run(int argc, char** argv, RunReport& report) {
  CLI::App program("Text to video with Hilbert-ordered, block-sparse attention", "sparsereel");
  program.set_version_flag("--version", std::string("sparsereel ") + SPARSEREEL_VERSION);
  program.formatter(std::make_shared<Help>());
  program.require_subcommand(1);
  Arguments arguments;
  Settings collected;
  const auto settings = [&](const char* command) {
    collect_settings(collected, arguments.values, arguments.config);
    check_distinct_files(collected, arguments.config, arguments.path);
    start_report(collected.text("report", ""), collected.flag("json"), command, report);
    return collected;
  };

  CLI::App* generate_command = program.add_subcommand("generate", "one prompt -> one video");
  generate_command->footer(
      "sparsereel generate -p \"a red circle moving to the right on a blue background\" -o circle.mp4");
  add_options(*generate_command, arguments, {});
  generate_command->callback([&] { generate(settings("generate"), report); });

  CLI::App* batch_command = program.add_subcommand("batch", "a prompt set -> a folder of videos");
  sets::BatchOptions batch_options;
  add_batch_options(*batch_command, batch_options);
  add_options(*batch_command, arguments, batch_keys());
  batch_command->callback([&] {
    collect_settings(collected, arguments.values, arguments.config);
    const sets::SetSettings set{.command_line = arguments.values, .config_file = arguments.config, .merged = collected};
    batch(set, batch_options, report);
  });

  CLI::App* decode_command = program.add_subcommand("decode", "saved latents -> video");
  decode_command->add_option("LATENTS", arguments.path, "safetensors file, key latents")->type_name("FILE")->required();
  add_options(*decode_command, arguments, decode_keys());
  decode_command->callback([&] { decode(arguments.path, settings("decode"), report); });

  CLI::App* bench_command = program.add_subcommand("bench", "measure on this machine");
  bench_command->require_subcommand(1);
  CLI::App* bench_attention_command =
      bench_command->add_subcommand("attention", "full, quantized and sparse attention side by side");
  bench::AttentionOptions attention_options;
  add_bench_attention_options(*bench_attention_command, attention_options);
  bench_attention_command->callback([&] {
    check_distinct({{"--output", attention_options.output}, {"--report", attention_options.report}});
    start_report(attention_options.report, attention_options.json, "bench attention", report);
    bench_attention(attention_options, report);
  });

  CLI::App* bench_pipeline_command =
      bench_command->add_subcommand("pipeline", "whole videos with full, quantized and sparse attention side by side");
  bench::PipelineOptions pipeline_options;
  add_bench_pipeline_options(*bench_pipeline_command, pipeline_options);
  add_options(*bench_pipeline_command, arguments, bench::pipeline_keys());
  bench_pipeline_command->callback([&] {
    collect_settings(collected, arguments.values, arguments.config);
    check_distinct({{"--output", pipeline_options.output},
                    {"--report", collected.text("report", "")},
                    {"--against", pipeline_options.against},
                    {"--heat-map", pipeline_options.heat_map},
                    {"--profile", collected.text("profile", "")},
                    {"--config", arguments.config},
                    {"--random-weights", collected.text("random_weights", "")},
                    {"--prompt-file", collected.text("prompt_file", "")}});
    start_report(collected.text("report", ""), collected.flag("json"), "bench pipeline", report);
    bench_pipeline(collected, pipeline_options, report);
  });

  CLI::App* bench_plot_command = bench_command->add_subcommand("plot", "draw the JSON report of a benchmark");
  std::string plot_output = "bench.png";
  bench_plot_command->add_option("REPORT", arguments.path, "JSON of bench pipeline or bench attention")
      ->type_name("FILE")
      ->required();
  bench_plot_command->add_option("-o,--output", plot_output, "PNG to write (default bench.png)")->type_name("FILE");
  bench_plot_command->callback([&] {
    check_distinct({{"the report", arguments.path}, {"--output", plot_output}});
    bench_plot(arguments.path, plot_output, report);
  });

  CLI::App* tune_command =
      program.add_subcommand("tune", "how sparse each head may be, under error bounds and in a time budget");
  tuning::TuneOptions tune_options;
  add_tune_options(*tune_command, tune_options);
  add_options(*tune_command, arguments, tuning::tune_keys());
  tune_command->callback([&] {
    collect_settings(collected, arguments.values, arguments.config);
    check_distinct({{"--output", tune_options.output},
                    {"the search beside --output", tuning::state_beside(tune_options.output)},
                    {"--heat-map", tune_options.heat_map},
                    {"--report", collected.text("report", "")},
                    {"the file of prompts", tune_options.prompts},
                    {"--config", arguments.config},
                    {"--random-weights", collected.text("random_weights", "")}});
    start_report(collected.text("report", ""), collected.flag("json"), "tune", report);
    tune(collected, tune_options, report);
  });

  CLI::App* inspect_command =
      program.add_subcommand("inspect", "what a checkpoint, a safetensors file or a video holds");
  inspect_command->add_option("PATH", arguments.path, "checkpoint folder, .safetensors, .mp4 or .gif")
      ->type_name("FILE")
      ->required();
  inspect_command->add_flag("--json", arguments.json, "print one JSON object");
  inspect_command->callback([&] { inspect(arguments.path, arguments.json); });

  CLI::App* config_command = program.add_subcommand("config", "settings");
  config_command->require_subcommand(1);
  CLI::App* show_command = config_command->add_subcommand("show", "what would run, and where each value comes from");
  add_options(*show_command, arguments, {});
  show_command->callback([&] {
    collect_settings(collected, arguments.values, arguments.config);
    show_config(collected);
  });

  CLI::App* completion_command =
      program.add_subcommand("completion", "a script that teaches a shell to complete command lines");
  completion_command->footer("source <(sparsereel completion bash)");
  completion_command->add_option("SHELL", arguments.path, "yours")->type_name("bash,zsh,fish")->required();
  completion_command->callback([&] { std::cout << completion_script(describe(program), arguments.path); });

  CLI::App* reference_command = program.add_subcommand("reference", "the manual: every command, option and file");
  reference_command->footer("sparsereel reference --format man | man -l -");
  std::string reference_format = "text";
  reference_command->add_option("--format", reference_format, "as it is, or for 'man -l -' (default text)")
      ->type_name("text,man");
  reference_command->callback([&] { std::cout << reference(describe(program), reference_format); });

  program.add_subcommand("doctor", "what this machine and build offer, and what is missing")->callback(doctor);

  const c10::InferenceMode guard;
  try {
    program.parse(normalised(argc, argv));
  } catch (const CLI::Success& request) {  // --help and --version
    program.exit(request, std::cout, std::cerr);
  } catch (const Error& error) {
    throw collected.with_place(error);
  } catch (const CLI::ParseError& error) {
    std::vector<std::string> words = normalised(argc, argv);
    std::reverse(words.begin(), words.end());
    const bool unknown_command = program.get_subcommands().empty() && argc > 1;
    throw bad_input(unknown_command ? std::string(argv[1]) + " is no command: " + error.what() : cause_of(error),
                    command_line_remedy(program, words));
  }
}

/// Prints cause and remedy, a line each, and ends the report; a report that cannot be written changes nothing about the
/// exit code.
int fail(RunReport& report, int exit_code, const std::string& cause, std::string remedy) {
  if (!report.recovery.empty()) remedy += (remedy.empty() ? "" : "; ") + report.recovery;
  std::cerr << (exit_code == 130 ? "interrupted: " : "error: ") << cause << "\n  remedy: " << remedy << "\n";
  try {
    return finish(report, exit_code, cause, remedy);
  } catch (const Error& error) {
    std::cerr << "warning: " << error.what() << "\n";
  }
  return finish(report, exit_code, cause, remedy);  // prints what could not be written
}

/// A reader of a pipe that has seen enough is no failure; a full disk is.
void check_stdout() {
  std::cout.flush();
  const bool failed = !std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  struct stat output {};
  const bool piped = fstat(STDOUT_FILENO, &output) == 0 && (S_ISFIFO(output.st_mode) || S_ISSOCK(output.st_mode));
  if (failed && !piped) throw run_failure("stdout could not be written", "see that it is open and has room");
}

int run_to_exit_code(int argc, char** argv, RunReport& report) {
  try {
    run(argc, argv, report);
    const int exit_code = finish(report, 0);
    check_stdout();
    return exit_code;
  } catch (...) {
    const Error error = models::as_error(std::current_exception());
    const bool resumable = error.exit_code() == 130 && !report.recovery.empty();
    return fail(report, error.exit_code(), error.what(), resumable ? "" : error.remedy());
  }
}

}  // namespace
}  // namespace sparsereel::app

int main(int argc, char** argv) {
  try {
    sparsereel::app::install_signal_handlers();
    sparsereel::app::RunReport report;
    return sparsereel::app::run_to_exit_code(argc, argv, report);
  } catch (...) {
    std::fputs("error: out of memory while reporting an error\n  remedy: free some memory\n", stderr);
  }
  return 1;
}
