// The program: subcommands, the only place that catches, and exit codes (0 done, 1 failed, 2 bad input, 130
// interrupted).
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <new>
#include <string_view>

#include "app/commands/bench_attention.h"
#include "app/commands/bench_pipeline.h"
#include "app/commands/bench_plot.h"
#include "app/commands/config.h"
#include "app/commands/decode.h"
#include "app/commands/doctor.h"
#include "app/commands/generate.h"
#include "app/commands/inspect.h"
#include "app/commands/tune.h"
#include "app/interrupt.h"
#include "app/outputs.h"
#include "hilbert/error.h"
#include "models/checkpoint/atomic_file.h"

namespace sparsereel::app {
namespace {

constexpr const char* kMemoryRemedy = "choose a smaller size or fewer frames, or --vae-tiling on";

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
                        : spec.kind == ValueKind::whole  ? "N"
                        : spec.kind == ValueKind::number ? "X"
                                                         : "TEXT");
    }
    option->group(spec.group);
  }
  command.add_option("--config", arguments.config, "YAML file of options (keys: long names with _)")->type_name("FILE");
}

void start_report(const std::string& path, bool print, const char* command, RunReport& report) {
  if (!path.empty()) {
    const models::AtomicFile probe(path);  // a report that cannot be written ends the run before it begins
    report.path = path;
  }
  report.print = print;
  report.content["version"] = SPARSEREEL_VERSION;
  report.content["command"] = command;
}

void run(int argc, char** argv, RunReport& report) {
  CLI::App program("Text to video with Hilbert-ordered, block-sparse attention", "sparsereel");
  program.set_version_flag("--version", std::string("sparsereel ") + SPARSEREEL_VERSION);
  program.require_subcommand(1);
  Arguments arguments;
  const auto settings = [&](const char* command) {
    Settings collected = collect_settings(arguments.values, arguments.config);
    check_distinct_files(collected, arguments.config, arguments.path);
    start_report(collected.text("report", ""), collected.flag("json"), command, report);
    return collected;
  };

  CLI::App* generate_command = program.add_subcommand("generate", "one prompt -> one video");
  add_options(*generate_command, arguments, {});
  generate_command->callback([&] { generate(settings("generate"), report); });

  CLI::App* decode_command = program.add_subcommand("decode", "saved latents -> video");
  decode_command->add_option("LATENTS", arguments.path, "safetensors file, key latents")->required();
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
    const Settings collected = collect_settings(arguments.values, arguments.config);
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
  bench_plot_command->add_option("REPORT", arguments.path, "JSON of bench pipeline or bench attention")->required();
  bench_plot_command->add_option("-o,--output", plot_output, "PNG to write (default bench.png)")->type_name("FILE");
  bench_plot_command->callback([&] { bench_plot(arguments.path, plot_output, report); });

  CLI::App* tune_command =
      program.add_subcommand("tune", "how sparse each head may be, under error bounds and in a time budget");
  tuning::TuneOptions tune_options;
  add_tune_options(*tune_command, tune_options);
  add_options(*tune_command, arguments, tuning::tune_keys());
  tune_command->callback([&] {
    const Settings collected = collect_settings(arguments.values, arguments.config);
    check_distinct({{"--output", tune_options.output},
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
  inspect_command->add_option("PATH", arguments.path, "checkpoint folder, .safetensors, .mp4 or .gif")->required();
  inspect_command->add_flag("--json", arguments.json, "print one JSON object");
  inspect_command->callback([&] { inspect(arguments.path, arguments.json); });

  CLI::App* config_command = program.add_subcommand("config", "settings");
  config_command->require_subcommand(1);
  CLI::App* show_command = config_command->add_subcommand("show", "what would run, and where each value comes from");
  add_options(*show_command, arguments, {});
  show_command->callback([&] { show_config(collect_settings(arguments.values, arguments.config)); });

  program.add_subcommand("doctor", "what this machine and build offer, and what is missing")->callback(doctor);

  const c10::InferenceMode guard;
  try {
    program.parse(normalised(argc, argv));
  } catch (const CLI::Success& request) {  // --help and --version
    program.exit(request, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    std::string help = "sparsereel";
    for (const CLI::App* command = &program; !command->get_subcommands().empty();) {
      command = command->get_subcommands().front();
      help += " " + command->get_name();
    }
    const bool unknown_command = program.get_subcommands().empty() && argc > 1;
    throw bad_input(unknown_command ? std::string(argv[1]) + " is no command: " + error.what() : error.what(),
                    "see '" + help + " --help'");
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

/// libtorch's allocator of host memory tells its failures from others only by their text.
bool out_of_host_memory(const c10::Error& error) {
  return std::string_view(error.what_without_backtrace()).find("can't allocate memory") != std::string_view::npos;
}

int run_to_exit_code(int argc, char** argv, RunReport& report) {
  try {
    run(argc, argv, report);
    return finish(report, 0);
  } catch (const Error& error) {
    return fail(report, error.exit_code(), error.what(), error.remedy());
  } catch (const models::Cancelled&) {
    return fail(report, 130, "nothing half-written is left behind",
                report.recovery.empty() ? "run the same command again: the same seed gives the same video" : "");
  } catch (const std::bad_alloc&) {
    return fail(report, 1, "out of memory", kMemoryRemedy);
  } catch (const c10::OutOfMemoryError& error) {
    return fail(report, 1, std::string("out of GPU memory: ") + error.what_without_backtrace(),
                "choose a smaller size or fewer frames, --vae-tiling on, --offload, or --dtype bf16");
  } catch (const c10::Error& error) {
    if (out_of_host_memory(error)) return fail(report, 1, "out of memory", kMemoryRemedy);
    return fail(report, 1, std::string("libtorch failed: ") + error.what_without_backtrace(),
                "report this with the command line and 'sparsereel doctor'");
  } catch (const std::exception& error) {
    return fail(report, 1, error.what(), "report this with the command line and 'sparsereel doctor'");
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
