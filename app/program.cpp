#include "app/program.h"

#include <c10/core/InferenceMode.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "app/called_program.h"
#include "app/clock.h"
#include "app/commands/batch.h"
#include "app/commands/bench.h"
#include "app/commands/completion.h"
#include "app/commands/config.h"
#include "app/commands/decode.h"
#include "app/commands/doctor.h"
#include "app/commands/dry_run.h"
#include "app/commands/generate.h"
#include "app/commands/inspect.h"
#include "app/commands/reference.h"
#include "app/commands/tune.h"
#include "app/commands/tune/state.h"
#include "app/job/early_report.h"
#include "app/job/interrupt.h"
#include "app/job/outputs.h"
#include "app/options/choice_commands.h"
#include "app/options/command_tree.h"
#include "app/options/several.h"
#include "app/ranks/children.h"
#include "app/ranks/shared_video.h"
#include "app/terminal.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/engine/failure.h"
#include "models/layers/cpu_threads.h"

namespace sparsereel::app {
namespace {

/// The program's commands, what the command line gave them, and what they report.
struct CommandLine {
  explicit CommandLine(RunReport& run_report) : report(run_report) {}

  CLI::App program{"Text to video with Hilbert-ordered, block-sparse attention", "sparsereel"};
  std::map<std::string, std::string> values;  // option key -> text
  std::string config;                         // --config
  std::string path;                           // the file that a command names without an option
  bool json = false;                          // of inspect and doctor
  bool tensors = false;                       // of inspect
  std::string plot_output = "bench.png", reference_format = "text";
  sets::BatchOptions batch;
  bench::AttentionOptions attention;
  bench::PipelineOptions pipeline;
  bench::QualityOptions quality;
  tuning::TuneOptions tune;
  Settings settings;                       // merged, once a command runs
  Reservations reservations;               // of outputs that the program names
  bool is_silent = false;                  // another rank speaks
  std::optional<std::string> report_file;  // --report of a command that has begun and writes one
  RunReport& report;

  void collect(PresetUse use = PresetUse::whole) {
    report_file = values.contains("report") ? values.at("report") : "";  // before values are found wrong
    collect_settings(settings, values, config, use);
  }
  /// What the ranks of a launcher have the same of.
  std::map<std::string, std::string> given() const {
    std::map<std::string, std::string> all = values;
    all["config"] = config;
    return all;
  }
  void start(const char* command) { start_report(settings.text("report", ""), settings.flag("json"), command, report); }
  /// `files`: those of the command that no option of the table names.
  void check_files(Command command, std::vector<NamedFile> files) const {
    for (const NamedFile& file : files_of(command, settings)) files.push_back(file);
    files.push_back({"--config", config});
    app::check_files(files, settings);
  }
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

/// CLI11 throws what says nothing where a flag has a value that it does not know.
void check_flags(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const size_t end = argument.find('=');
    if (!argument.starts_with("--") || end == std::string::npos) continue;
    const std::string name = argument.substr(0, end), value = argument.substr(end + 1);
    const auto is_named = [&](const OptionSpec& option) {
      return option.kind == ValueKind::flag &&
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

void add_options(CLI::App& command, CommandLine& line, Command which) {
  for (const OptionSpec& spec : option_table()) {
    if (!takes(which, spec)) continue;
    const std::string key = spec.key;
    CLI::Option* option = nullptr;
    if (spec.kind == ValueKind::flag) {
      option = command.add_flag_function(
          spec.names, [&line, key](int64_t count) { line.values[key] = count > 0 ? "true" : "false"; }, spec.help);
    } else {
      option = command.add_option_function<std::string>(
          spec.names, [&line, key](const std::string& value) { line.values[key] = value; }, spec.help);
      std::string choices;
      for (const std::string& choice : spec.choices) choices += (choices.empty() ? "" : ",") + choice;
      option->type_name(!choices.empty()                  ? choices
                        : spec.kind == ValueKind::file    ? "FILE"
                        : spec.kind == ValueKind::folder  ? "FOLDER"
                        : spec.kind == ValueKind::loras   ? "FILE[:SCALE]"
                        : spec.kind == ValueKind::whole   ? "N"
                        : spec.kind == ValueKind::seed    ? "N"
                        : spec.kind == ValueKind::size    ? "WxH|Np"
                        : spec.kind == ValueKind::number  ? "X"
                        : spec.kind == ValueKind::numbers ? "X,X,.."
                                                          : "TEXT");
    }
    if (spec.kind == ValueKind::loras) option->join(',');
    option->group(spec.borrowed ? "" : spec.group);
  }
  command.add_option("--config", line.config, "YAML file of options (keys: long names with _)")->type_name("FILE");
}

class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* command, std::string, CLI::AppFormatMode) const override {
    return help_text(describe(*command));
  }
};

/// Scripts put what they want behind what they are given: the last of a repeated option wins, but for what
/// add_options() joins.
void let_the_last_win(CLI::App& command) {
  for (CLI::Option* option : command.get_options([](const CLI::Option* each) { return !each->get_positional(); }))
    if (option->get_multi_option_policy() != CLI::MultiOptionPolicy::Join) option->take_last();
  for (CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; })) let_the_last_win(*below);
}

/// Of a rank that a launcher started: what is wrong here alone is for rank 0 to say.
void follow_rank_0(CommandLine& line) {
  std::exception_ptr failure;
  try {
    line.collect();
    if (line.settings.flag("dry_run")) return;  // rank 0 does it alone
  } catch (const Error&) {
    failure = std::current_exception();
  }
  const std::unique_ptr<World> world = World::find(line.settings, line.given());
  if (!world) {
    std::cerr << "error: gpus 1 of a file comes too late for a rank of a launcher\n  remedy: give it as --gpus 1\n";
    throw run_failure("this rank has no rank 0", "give --gpus 1");
  }
  const int code = follow(*world, failure);
  for (const ErrorKind kind : {ErrorKind::bad_input, ErrorKind::failed, ErrorKind::cancelled})
    if (code == models::exit_code(kind)) throw Error(kind, "the ranks came to no video", "see what rank 0 says");
}

void add_generate(CommandLine& line) {
  CLI::App* command = line.program.add_subcommand("generate", "one prompt -> one video");
  command->footer("sparsereel generate -p \"a red circle moving to the right on a blue background\" -o circle.mp4");
  add_options(*command, line, Command::generate);
  command->callback([&line] {
    if (line.is_silent) return follow_rank_0(line);
    line.collect();
    const bool output_is_named = line.settings.has("output");
    const bool is_dry = line.settings.flag("dry_run");
    line.reservations = choose_output(line.settings, video_count(line.settings), /*reserves=*/!is_dry);
    const std::vector<Settings> videos = settings_of_videos(line.settings);
    if (is_dry) {
      check_distinct(videos, line.config);
      line.start("generate");
      return show_generation(videos, line.report);
    }
    check_files(videos, line.config, {});
    line.start("generate");
    const std::unique_ptr<World> world = World::find(line.settings, line.given());
    const GivenOutput output{.path = line.settings.text("output", kDefaultOutput),
                             .is_named = output_is_named,
                             .has_random_seed = is_random_seed(line.settings.text("seed", ""))};
    generate(videos, output, world.get(), line.report);
  });
}

void add_batch(CommandLine& line) {
  CLI::App* command = line.program.add_subcommand("batch", "a prompt set -> a folder of videos");
  add_batch_options(*command, line.batch);
  add_options(*command, line, Command::batch);
  command->callback([&line] {
    line.collect();
    batch({.command_line = line.values, .config_file = line.config, .merged = line.settings}, line.batch, line.report);
  });
}

void add_decode(CommandLine& line) {
  CLI::App* command = line.program.add_subcommand("decode", "saved latents -> video");
  command->add_option("LATENTS", line.path, "safetensors file, key latents")->type_name("FILE")->required();
  add_options(*command, line, Command::decode);
  command->callback([&line] {
    line.collect();
    line.reservations = choose_output(line.settings, 1);
    check_files({line.settings}, line.config, line.path);
    line.start("decode");
    decode(line.path, line.settings, line.report);
  });
}

void add_bench_attention(CommandLine& line, CLI::App& bench_command) {
  CLI::App* command = bench_command.add_subcommand("attention", "full, quantized and sparse attention side by side");
  bench::add_options(*command, line.attention);
  command->callback([&line] {
    const bench::AttentionOptions& options = line.attention;
    line.report_file = options.report;
    check_distinct(
        {{"--output", options.table.output}, {"--report", options.report}, {"--captured", options.captured}});
    start_report(options.report, options.json, "bench attention", line.report);
    bench_attention(options, line.report);
  });
}

void add_bench_pipeline(CommandLine& line, CLI::App& bench_command) {
  CLI::App* command =
      bench_command.add_subcommand("pipeline", "whole videos with full, quantized and sparse attention side by side");
  bench::add_options(*command, line.pipeline);
  add_options(*command, line, Command::bench_pipeline);
  command->callback([&line] {
    line.collect(PresetUse::whole_where_named);
    line.check_files(Command::bench_pipeline, {{"--output", line.pipeline.table.output, true},
                                               {"--against", line.pipeline.against},
                                               {"--heat-map", line.pipeline.heat_map, true}});
    line.settings.given_as_lists(bench::selections_given(line.pipeline.lists));
    line.start("bench pipeline");
    bench_pipeline(line.settings, line.pipeline, line.report);
  });
}

void add_bench_quality(CommandLine& line, CLI::App& bench_command) {
  CLI::App* command = bench_command.add_subcommand(
      "quality", "what leaving blocks out costs in quality: videos beside full attention's");
  bench::add_options(*command, line.quality);
  add_options(*command, line, Command::bench_quality);
  command->footer("sparsereel bench quality prompts.txt --limit 4 --topk 0.5,0.3");
  command->callback([&line] {
    const bench::QualityOptions& options = line.quality;
    line.collect(PresetUse::whole_where_named);
    std::vector<NamedFile> files = {{"--output", options.table.output, true},
                                    {"--plot", options.plot, true},
                                    {"--pictures", options.pictures, true},
                                    {"the file of prompts", options.prompts},
                                    {"--judge", options.judge}};
    for (const std::string& profile : options.profiles()) files.push_back({"--profile", profile});
    for (const std::string& report : split(options.times, ',')) files.push_back({"--times", report});
    line.check_files(Command::bench_quality, std::move(files));
    line.settings.given_as_lists(bench::selections_given(options.lists));
    line.start("bench quality");
    bench_quality(line.settings, options, line.report);
  });
}

void add_bench_plot(CommandLine& line, CLI::App& bench_command) {
  CLI::App* command = bench_command.add_subcommand("plot", "draw the JSON report of a benchmark");
  command->add_option("REPORT", line.path, "JSON of bench pipeline, attention or quality")
      ->type_name("FILE")
      ->required();
  command->add_option("-o,--output", line.plot_output, "PNG to write (default bench.png)")->type_name("FILE");
  command->callback([&line] {
    check_distinct({{"the report", line.path}, {"--output", line.plot_output}});
    bench_plot(line.path, line.plot_output, line.report);
  });
}

void add_bench(CommandLine& line) {
  CLI::App* command = line.program.add_subcommand("bench", "measure on this machine");
  command->require_subcommand(1);
  add_bench_attention(line, *command);
  add_bench_pipeline(line, *command);
  add_bench_quality(line, *command);
  add_bench_plot(line, *command);
}

void add_tune(CommandLine& line) {
  CLI::App* command =
      line.program.add_subcommand("tune", "the best setting for a model: cache, blocks, dense steps, weights");
  add_tune_options(*command, line.tune);
  add_options(*command, line, Command::tune);
  command->callback([&line] {
    line.collect(PresetUse::blocks_alone);
    const auto& output = line.tune.output;
    std::vector<NamedFile> files = {{"--output", output, true},
                                    {"the profile that misses what is asked for", tuning::missed_beside(output), true},
                                    {"--heat-map", line.tune.heat_map, true},
                                    {"the file of prompts", line.tune.prompts}};
    for (const std::string& times : split(line.tune.times, ',')) files.push_back({"--times", times});
    for (const std::filesystem::path& state : tuning::states_beside(output))
      files.push_back({"the search beside --output", state, true});
    line.check_files(Command::tune, std::move(files));
    line.start("tune");
    tune(line.settings, line.tune, line.report);
  });
}

/// The commands that look at things: what a file holds, what would run, what the program and the machine offer.
void add_inspect_and_config(CommandLine& line) {
  CLI::App* inspect_command =
      line.program.add_subcommand("inspect", "what a checkpoint, a file of weights, a model's YAML or a video holds");
  inspect_command
      ->add_option(
          "PATH", line.path,
          "checkpoint, folder of models, .safetensors, .gguf or .pth, a .yaml of configs/, video, folder of PNGs, "
          "or recipe or report as .json")
      ->type_name("FILE")
      ->required();
  inspect_command->add_flag("--json", line.json, "print one JSON object");
  inspect_command->add_flag("--tensors", line.tensors, "list each tensor of a file");
  inspect_command->callback([&line] { inspect(line.path, {.json = line.json, .tensors = line.tensors}); });

  CLI::App* config_command = line.program.add_subcommand("config", "settings");
  config_command->require_subcommand(1);
  CLI::App* show_command = config_command->add_subcommand("show", "what would run, and where each value comes from");
  add_options(*show_command, line, Command::generate);
  show_command->callback([&line] {
    collect_settings(line.settings, line.values, line.config);
    show_config(line.settings);
  });
}

void add_help_commands(CommandLine& line) {
  CLI::App* completion =
      line.program.add_subcommand("completion", "a script that teaches a shell to complete command lines");
  completion->footer("source <(sparsereel completion bash)");
  completion->add_option("SHELL", line.path, "yours")->type_name("bash,zsh,fish")->required();
  completion->callback([&line] { std::cout << completion_script(describe(line.program), line.path); });

  CLI::App* manual = line.program.add_subcommand("reference", "the manual: every command, option and file");
  manual->footer("sparsereel reference --format man | man -l -");
  manual->add_option("--format", line.reference_format, "as it is, or for 'man -l -' (default text)")
      ->type_name("text,man");
  manual->callback([&line] { std::cout << reference(describe(line.program), line.reference_format); });

  CLI::App* doctor_command =
      line.program.add_subcommand("doctor", "what this machine and build offer, and what is missing");
  doctor_command->add_flag("--json", line.json, "print one JSON object");
  doctor_command->callback([&line] { doctor(line.json); });
}

/// Parses the command line, which runs its command.
void parse(CommandLine& line, int argc, char** argv) {
  const c10::InferenceMode guard;
  try {
    std::vector<std::string> arguments = normalised(argc, argv);
    check_flags(arguments);
    line.program.parse(std::move(arguments));
  } catch (const CLI::Success& request) {  // --help and --version
    line.program.exit(request, std::cout, std::cerr);
  } catch (const Error& error) {
    throw line.settings.with_place(error);
  } catch (const CLI::ParseError& error) {
    std::vector<std::string> words = normalised(argc, argv);
    std::reverse(words.begin(), words.end());
    const std::string missing = missing_command(line.program, words);
    const bool unused = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const std::string cause = unused ? unused_words(line.program) : missing.empty() ? error.what() : missing;
    throw bad_input(cause, command_line_remedy(line.program, words));
  }
}

/// Whoever reads the JSON of --json or --report gets it from a run, too, that fails before its report begins.
void ask_for_report(const CommandLine& line, int argc, char** argv) {
  std::vector<std::string> words = normalised(argc, argv);
  std::reverse(words.begin(), words.end());
  const bool given = std::find(words.begin(), words.end(), "--json") != words.end();
  line.report.print = line.report.print || given || line.settings.flag("json");
  if (line.report.path.empty() && line.report_file)
    line.report.path = early_report(line.settings.text("report", *line.report_file), line.settings, words);
  line.report.content.emplace("version", SPARSEREEL_VERSION);
  line.report.content.emplace("command", describe(*named_command(line.program).first).path);
}

void run(int argc, char** argv, bool is_silent, RunReport& report) {
  CommandLine line(report);
  line.is_silent = is_silent;
  line.program.set_version_flag("--version", std::string("sparsereel ") + SPARSEREEL_VERSION);
  line.program.formatter(std::make_shared<Help>());
  line.program.require_subcommand(1);
  for (const auto& add :
       {add_generate, add_batch, add_decode, add_bench, add_tune, add_inspect_and_config, add_help_commands})
    add(line);
  let_the_last_win(line.program);
  try {
    parse(line, argc, argv);
  } catch (...) {
    ask_for_report(line, argc, argv);
    throw;
  }
}

/// Prints cause and remedy, a line each, and the choices as commands, made of the `words` of this one. Ends the report;
/// a report that cannot be written changes nothing about the exit code.
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

/// Of a process that leaves all words to another. `last_words`: of why it ends, for that one.
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
      // Rank 0 waits for this process, which ends faster than NCCL lets go of its GPU.
      if (code == 0 && world->has_gpu()) static_cast<void>(world.release());
      return code;
    }
    if (started) return run_silently(argc, argv, /*last_words=*/true);
    const bool is_silent = is_silent_rank({argv, argv + argc}, process_environment);
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
