// Builds the manual as a list of headings, paragraphs and entries, and prints it as plain text or as a page for man.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

#include "app/commands/commands.h"
#include "app/options/command_tree.h"
#include "app/options/nearest.h"
#include "app/options/option_group.h"
#include "app/options/option_table.h"

namespace sparsereel::app {
namespace {

/// A heading, a paragraph (a text without a term), or a term with its explanation and perhaps an example.
struct Entry {
  std::string heading = {}, term = {}, text = {}, example = {};
};

std::string names_of(const OptionInfo& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + name;
  return option.positional || option.value.empty() ? text : text + " " + option.value;
}

/// Returns the OptionSpec from which the option was made; null for options that are not in the option table.
const OptionSpec* find_spec(const OptionInfo& option) {
  for (const std::string& name : option.names) {
    const OptionSpec* spec = find_option(key_of_option(name));
    if (spec != nullptr && spec->help == option.help && spec->manual == option.manual) return spec;
  }
  return nullptr;
}

std::string choice_name(const std::string& key, const std::string& value) {
  return option_name(key) + (value.empty() ? "" : " " + value);
}

/// Returns a sentence about the options that the option excludes, and one for each value that excludes other options.
std::string exclusions(const OptionSpec& spec) {
  std::map<std::string, std::string> excluded;  // excluded options by value; under "" if every value excludes them
  const auto add = [&](const std::string& value, const std::string& other) {
    std::string& list = excluded[value];
    list += (list.empty() ? "" : ", ") + other;
  };
  for (const Exclusion& each : spec.option.excludes) add(each.value, choice_name(each.other, each.other_value));
  for (const OptionSpec& other : option_table())
    for (const Exclusion& each : other.option.excludes)
      if (each.other == spec.key()) add(each.other_value, choice_name(other.key(), each.value));
  std::string text;
  for (const auto& [value, others] : excluded)
    text += value.empty() ? " Not together with " + others + "."
                          : " " + choice_name(spec.key(), value) + " is refused together with " + others + ".";
  return text;
}

std::string explanation(const OptionInfo& option) {
  std::string text = option.manual.empty() ? option.help + "." : option.manual;
  for (size_t i = 0; i < option.choices.size(); ++i) text += (i == 0 ? " Values: " : ", ") + option.choices[i];
  if (!option.choices.empty()) text += ".";
  const OptionSpec* spec = find_spec(option);
  return spec == nullptr ? text : text + exclusions(*spec) + " In YAML: " + spec->key() + ".";
}

std::string first_long_name(const OptionInfo& option) {
  const auto place = std::find_if(option.names.begin(), option.names.end(),
                                  [](const std::string& name) { return name.starts_with("--"); });
  return place == option.names.end() ? option.names.front() : *place;
}

const OptionInfo* find_same(const CommandInfo& command, const OptionInfo& option) {
  const auto same = std::find_if(command.options.begin(), command.options.end(), [&](const OptionInfo& other) {
    return other.names == option.names && other.help == option.help && other.manual == option.manual;
  });
  return same == command.options.end() ? nullptr : &*same;
}

/// Returns true for --help and --help-all, which every command has.
bool is_general(const OptionInfo& option) {
  return option.names.back() == "--help" || option.names.back() == "--help-all";
}

/// Adds a command. Options that `generate` has too are only named; the others are explained.
void add_command(const CommandInfo& command, const CommandInfo* generate, std::vector<Entry>& entries) {
  std::string usage = "sparsereel " + command.path;
  for (const OptionInfo& option : command.options)
    if (option.positional) usage += " " + option.names.front();
  entries.push_back({.heading = usage});
  entries.push_back({.text = command.help + ".", .example = command.example});
  std::string shared;
  std::vector<std::pair<std::string, std::vector<Entry>>> groups;  // in the order of their first options
  for (const OptionInfo& option : command.options) {
    if (is_general(option)) continue;
    if (generate != nullptr && generate != &command && find_same(*generate, option) != nullptr) {
      shared += (shared.empty() ? "" : ", ") + first_long_name(option);
      continue;
    }
    const std::string title = option.positional || option.group == kOtherOptions ? "" : option.group;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == title; });
    if (group == groups.end()) group = groups.insert(title.empty() ? groups.begin() : groups.end(), {title, {}});
    group->second.push_back({.term = names_of(option), .text = explanation(option), .example = option.example});
  }
  std::ranges::stable_partition(groups, [](const auto& group) { return group.first != kResearch; });
  for (const auto& [title, options] : groups) {
    if (!title.empty()) entries.push_back({.text = title + ":"});
    entries.insert(entries.end(), options.begin(), options.end());
  }
  if (!shared.empty()) entries.push_back({.text = "It also takes these options of generate: " + shared + "."});
}

/// Returns the entries of the flags that every command has.
std::vector<Entry> general_entries(const CommandInfo& program) {
  std::vector<Entry> entries;
  for (const OptionInfo& option : program.options)
    entries.push_back({.term = names_of(option), .text = explanation(option), .example = option.example});
  return entries;
}

std::vector<Entry> attention_entries() {
  return {{.heading = "SPARSE ATTENTION"},
          {.text = R"(Attention compares each token of the video with all others, but few of these pairs matter. The
          tokens are ordered so that neighbors in space and time stand together (--token-order), and are divided into
          blocks of 64. For each tile of queries, only some blocks of keys are computed. --topk, --cdf, --error or
          --block-error says how many blocks are computed, --select says which, and --dropped says what replaces the
          others.)"},
          {.text = R"(The means of --dropped mean cost 1/cell of full attention's work. For the same number of computed
          blocks, the error is several times smaller than without means. Reports have the sparsity of a run (the share
          of blocks that were not computed), the cost of the means as a share of full attention's work (mean_share),
          and with --attention check the measured and the predicted error.)"}};
}

std::vector<Entry> file_entries() {
  return {
      {.heading = "SETTINGS AND THEIR SOURCES"},
      {.text = R"(Every option with a YAML key can stand in the file of --config. A row of a prompt set wins over the
          command line. The command line wins over --config. Then follow, strongest first: the profile of --profile,
          the recipe of --from, the settings of --distilled, the preset, the file of configs/ that fits the model, and
          the checkpoint. 'sparsereel config show' prints each value and its source.)"},
      {.heading = "FILES"},
      {.term = "F.mp4, F.gif.json",
       .text = R"(A video's recipe: in the comment tag of .mp4, .mov, .mkv and .webm, and in a file beside a GIF, a
           Y4M or a folder of PNGs.)"},
      {.term = "F.latents.safetensors", .text = "The latents of a run, kept until its video is written."},
      {.term = "F.checkpoint.safetensors",
       .text = "The progress of a denoising that was interrupted. The same command continues from it."},
      {.term = "manifest.<share>.jsonl",
       .text = "One line for each video of a set, in the folder of batch. A later run skips what is finished."},
      {.term = "F.txt, F.jsonl, F.csv, F.yaml",
       .text = R"(A prompt set. The format of standard input is recognized by its beginning: { for JSON lines, names
           of options such as prompt,seed for CSV, - for a YAML list, else one prompt a line. A set may come from a
           stranger. The files that a row writes (output, save_latents, contact_sheet, preview) are therefore names
           without a folder, and go into the folder of -o. A prompt_file must lie in the folder of the set. The paths
           of other files that a row reads (image, from, transformer) are relative to that folder.)"},
      {.term = "F.yaml, F.yaml.search",
       .text = "A profile of tune, and the progress of its search until the search is complete."},
      {.term = "configs/*.yaml",
       .text = "The known models: how a checkpoint is recognized, its architecture, defaults and presets."}};
}

std::vector<Entry> rank_entries() {
  return {
      {.heading = "ENVIRONMENT"},
      {.term = "RANK, WORLD_SIZE, LOCAL_RANK",
       .text = R"(The rank of this process, as torchrun sets it. The variables of mpirun (OMPI_COMM_WORLD_RANK and so
           on) and of Slurm (SLURM_PROCID and so on) do the same. With batch, each rank makes a share of the set;
           --share wins over these variables. With generate, the ranks make one video together.)"},
      {.term = "MASTER_ADDR, MASTER_PORT",
       .text = R"(Where the ranks meet: rank 0's host, and a free port there. torchrun sets both variables. Under srun
           they are not needed.)"},
      {.term = "SPARSEREEL_START_SECONDS, SPARSEREEL_GROUP_SECONDS",
       .text = R"(How many seconds a rank waits for a rank that has not started (default 60), and for a rank that does
           not answer (default 600). If a process of batch --gpus does not answer for so long, the others take its
           rows.)"},
      {.term = "SPARSEREEL_JOB_SECRET",
       .text = R"(A random text of 16 characters or more, the same for all ranks, by which they recognize each other.
           Ranks on several hosts need it.)"},
      {.term = "NCCL_NVLS_ENABLE",
       .text = "NVLink's multicast, which not every host allows. The program sets it to 0 unless you set it."},
      {.term = "NCCL_CUMEM_ENABLE",
       .text = R"(Buffers of CUDA's virtual memory. The program sets it to 0, so that several GPUs start faster,
           unless you set it or /dev/shm has little room.)"}};
}

std::vector<Entry> machine_entries() {
  return {
      {.term = "SPARSEREEL_FFMPEG",
       .text = "The ffmpeg program to run, if this build has no FFmpeg libraries. The default is ffmpeg on the PATH."},
      {.term = "CUDA_VISIBLE_DEVICES",
       .text = "The GPUs that the program sees, as for every CUDA program. --device cuda:N counts only these."},
      {.term = "OMP_NUM_THREADS", .text = "The number of CPU threads, if --threads is not given."},
      {.term = "OMP_WAIT_POLICY",
       .text = R"(The program sets it to passive, unless this or GOMP_SPINCOUNT is set: CPU threads that wait
               leave the CPU to others.)"},
      {.term = "SPARSEREEL_ATTENTION_KERNEL",
       .text = R"(hopper, ada, ampere, avx512, avx2 or portable: uses this kernel in place of the best one, for
               comparisons. With ada, a CPU emulates the arithmetic of ada in place of that of hopper.)"},
      {.term = "TERM",
       .text = R"(With dumb, progress is printed as lines in place of a bar. The same happens if standard error is
               not a terminal.)"}};
}

std::vector<Entry> exit_status_entries() {
  return {{.heading = "EXIT STATUS"},
          {.term = "0", .text = "Done."},
          {.term = "1", .text = "Failed while running."},
          {.term = "2", .text = "Bad arguments or input."},
          {.term = "130", .text = "Interrupted. No half-written file is left behind."}};
}

std::vector<Entry> manual(const CommandInfo& program) {
  std::vector<Entry> entries = {
      {.heading = "NAME"},
      {.text = "sparsereel - " + program.help},
      {.heading = "SYNOPSIS"},
      {.text = R"(sparsereel COMMAND [options]. Long names accept _ for -, and a value after a space or after =. If an
          option is given twice, the last one counts. These flags are general; every command has the first two:)"}};
  const auto generate = std::find_if(program.commands.begin(), program.commands.end(),
                                     [](const CommandInfo& command) { return command.path == "generate"; });
  const std::vector<Entry> general = general_entries(program);
  entries.insert(entries.end(), general.begin(), general.end());
  for (const CommandInfo* command : all_commands(program))
    if (!command->path.empty() && command->commands.empty())
      add_command(*command, generate == program.commands.end() ? nullptr : &*generate, entries);
  for (const auto& section :
       {attention_entries(), file_entries(), rank_entries(), machine_entries(), exit_status_entries()})
    entries.insert(entries.end(), section.begin(), section.end());
  return entries;
}

/// Returns the entries as plain text. An example stands in a separate line, which is not wrapped, so that people can
/// copy it. An empty line follows the example.
std::string as_text(const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& entry : entries) {
    if (!entry.heading.empty())
      text += (text.empty() || text.ends_with("\n\n") ? "" : "\n") + entry.heading + "\n";
    else if (entry.term.empty())
      text += wrapped(entry.text, 4);
    else
      text += "    " + entry.term + "\n" + wrapped(entry.text, 8);
    if (!entry.example.empty()) text += (entry.term.empty() ? "    " : "        ") + entry.example + "\n\n";
  }
  return text;
}

/// Escapes the text for troff, which reads a line that begins with a dot or a quote as a request.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '-') result.push_back('\\');
    result.push_back(c == '\\' ? 'e' : c);
  }
  return result.starts_with(".") || result.starts_with("'") ? "\\&" + result : result;
}

std::string as_man(const std::vector<Entry>& entries) {
  std::string text = ".TH SPARSEREEL 1 \"\" \"sparsereel " SPARSEREEL_VERSION "\"\n";
  for (const Entry& entry : entries) {
    if (!entry.heading.empty())
      text += ".SH " + escaped(entry.heading) + "\n";
    else if (entry.term.empty())
      text += ".PP\n" + escaped(single_spaced(entry.text)) + "\n";
    else
      text += ".TP\n.B " + escaped(entry.term) + "\n" + escaped(single_spaced(entry.text)) + "\n";
    if (!entry.example.empty()) text += "For example:\n.B " + escaped(entry.example) + "\n";
  }
  return text;
}

/// Returns the manual in the format `text` or `man` (for `man -l`, or for a folder of manual pages). Throws Error for
/// any other format.
std::string reference(const CommandInfo& program, const std::string& format) {
  require_choice("--format " + format, format, {"text", "man"}, "see 'sparsereel reference --help'");
  return format == "text" ? as_text(manual(program)) : as_man(manual(program));
}

}  // namespace

void add_reference(CLI::App& program, CommandLine& /*line*/) {
  CLI::App* command = program.add_subcommand("reference", "Prints the manual of every command, option and file");
  const auto format = std::make_shared<std::string>("text");
  command->footer("sparsereel reference --format man | man -l -");
  OptionGroup(*command, kOtherOptions)
      .add("--format", *format,
           {.help = "plain text, or a page for man (default text)",
            .manual = R"(Prints the manual as plain text, or as a page that 'man -l -' shows. Save the page as
                sparsereel.1 in a folder of manual pages, and 'man sparsereel' shows it.)",
            .example = "sparsereel reference --format man > sparsereel.1"},
           "text,man");
  command->callback([&program, format] { std::cout << reference(describe(program), *format); });
}

}  // namespace sparsereel::app
