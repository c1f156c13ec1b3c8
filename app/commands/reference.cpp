// Builds one list of headings, paragraphs and entries and prints it as plain text or as a manual page.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "app/commands/commands.h"
#include "app/options/command_tree.h"
#include "app/options/nearest.h"
#include "app/options/settings.h"

namespace sparsereel::app {
namespace {

/// A heading (without text), a paragraph (without term), or a term with its explanation.
struct Entry {
  std::string heading, term, text;
};

std::string names_of(const OptionInfo& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + name;
  return option.positional || option.value.empty() ? text : text + " " + option.value;
}

/// Returns the YAML key of an option of the table; empty for other options.
std::string yaml_key(const OptionInfo& option) {
  for (const std::string& name : option.names) {
    if (!name.starts_with("--")) continue;
    std::string key = name.substr(2);
    std::replace(key.begin(), key.end(), '-', '_');
    const OptionSpec* spec = find_option(key);
    if (spec != nullptr && spec->help == option.help) return spec->key;
  }
  return {};
}

std::string explanation(const OptionInfo& option) {
  std::string text = option.help;
  for (size_t i = 0; i < option.choices.size(); ++i) text += (i == 0 ? "; one of " : ", ") + option.choices[i];
  return text + ".";
}

std::string first_long_name(const OptionInfo& option) {
  const auto place = std::find_if(option.names.begin(), option.names.end(),
                                  [](const std::string& name) { return name.starts_with("--"); });
  return place == option.names.end() ? option.names.front() : *place;
}

const OptionInfo* find_same(const CommandInfo& command, const OptionInfo& option) {
  const auto same = std::find_if(command.options.begin(), command.options.end(), [&](const OptionInfo& other) {
    return other.names == option.names && other.help == option.help;
  });
  return same == command.options.end() ? nullptr : &*same;
}

/// Adds a command: its own options in full, and the names of those that `generate` has too.
void add_command(const CommandInfo& command, const CommandInfo* generate, std::vector<Entry>& entries) {
  std::string usage = "sparsereel " + command.path;
  for (const OptionInfo& option : command.options)
    if (option.positional) usage += " " + option.names.front();
  entries.push_back({usage, "", ""});
  entries.push_back({"", "", command.help + "."});
  if (!command.example.empty()) entries.push_back({"", "", "For example: " + command.example});
  std::string shared;
  std::vector<std::pair<std::string, std::vector<Entry>>> groups;  // in the order of their first options
  for (const OptionInfo& option : command.options) {
    if (option.names.back() == "--help") continue;
    if (generate != nullptr && generate != &command && find_same(*generate, option) != nullptr) {
      shared += (shared.empty() ? "" : ", ") + first_long_name(option);
      continue;
    }
    const std::string key = yaml_key(option),
                      title = option.positional || option.group == "Options" ? "" : option.group;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == title; });
    if (group == groups.end()) group = groups.insert(title.empty() ? groups.begin() : groups.end(), {title, {}});
    group->second.push_back(
        {"", names_of(option), explanation(option) + (key.empty() ? "" : " In YAML: " + key + ".")});
  }
  for (const auto& [title, options] : groups) {
    if (!title.empty()) entries.push_back({"", "", title + ":"});
    entries.insert(entries.end(), options.begin(), options.end());
  }
  if (!shared.empty()) entries.push_back({"", "", "As of generate: " + shared + "."});
}

std::vector<Entry> attention_entries() {
  return {
      {"SPARSE ATTENTION", "", ""},
      {"", "",
       "Attention compares each token of the video with all others, and few of these pairs count. The tokens are "
       "ordered "
       "so that neighbours in space and time stand together (--token-order), in blocks of 64. Each group of queries "
       "computes some blocks of keys and drops the others: --topk, --cdf, --error or --block-error say how many, "
       "--select says which."},
      {"", "--dropped mean",
       "A dropped block still counts: every --cell tokens of it count as one key, the mean of their keys, which weighs "
       "as much as all of them and brings the mean of their values. The means cost 1/cell of full attention's work; "
       "with "
       "as many blocks computed the error is several times smaller, so that far fewer blocks will do."},
      {"", "--dropped none",
       "A dropped block counts for nothing. SpargeAttn's method is --dropped none --select mass."},
      {"", "--select error",
       "Computes the blocks for which their means would be furthest off. --select mass computes those that hold most "
       "of "
       "the attention, however well means would do for them."},
      {"", "--error E",
       "The predicted error of a group of queries, over the mean length of the head's outputs, stays below E with as "
       "few "
       "blocks as possible. Reports have the sparsity that comes of it (of blocks; mean_share is what the means cost), "
       "the predicted error, and with --attention check the measured one, about a quarter of it."},
      {"", "--block-error T",
       "Computes the blocks whose own predicted error is above T, over the mean length of all heads' outputs, and of "
       "each group of queries at least one. One T for a whole run gives blocks to the layers and steps where means err "
       "most; how many they are depends on what is drawn. Of use are .0045 to .03 with some 2,000 tokens, a tenth with "
       "9,000: each of more blocks errs by less."}};
}

std::vector<Entry> file_entries() {
  return {
      {"SETTINGS AND THEIR SOURCES", "", ""},
      {"", "",
       "Every option with a YAML key can stand in the file of --config. A row of a prompt set wins over the command "
       "line, that over --config, that over the profile of --profile, that over the recipe of --from, that over the "
       "file of "
       "configs/ that fits the model, "
       "and that over the checkpoint. 'sparsereel config show' prints each value and its source."},
      {"FILES", "", ""},
      {"", "F.mp4, F.gif.json",
       "A video's recipe: the comment tag of .mp4, .mov, .mkv and .webm, a file beside GIF, Y4M and folders of PNGs."},
      {"", "F.latents.safetensors", "The latents of a run, kept until its video is written."},
      {"", "F.checkpoint.safetensors", "Where a denoising cut short goes on, after Ctrl-C too."},
      {"", "manifest.<rank>.jsonl", "In the folder of batch: a line a video, by which a run goes on."},
      {"", "F.txt, F.jsonl, F.csv, F.yaml",
       "A prompt set. Standard input is known by how it begins: with {, with names of options (prompt,seed), with a "
       "list's -, else a prompt a line. What a row writes (output, save_latents, contact_sheet) goes where -o says, "
       "and "
       "its prompt_file lies beside the set: all are names without a folder, since a set may be somebody else's. Other "
       "files that a row reads (image, from, transformer) are looked for from the folder of the set."},
      {"", "F.yaml, F.yaml.search", "A profile of tune, and how far its search is until it is complete."},
      {"", "configs/*.yaml", "match, architecture and defaults of known models."}};
}

std::vector<Entry> environment_entries() {
  return {
      {"ENVIRONMENT", "", ""},
      {"", "RANK, WORLD_SIZE, LOCAL_RANK",
       "Which share of a set batch renders, as torchrun sets them; likewise OMPI_COMM_WORLD_RANK and its kin of "
       "mpirun, and SLURM_PROCID and its kin. --share wins over them. With generate such ranks make one video "
       "together."},
      {"", "MASTER_ADDR, MASTER_PORT",
       "Where such ranks meet: rank 0's host and a free port there. torchrun sets them; srun's ranks do without."},
      {"", "SPARSEREEL_START_SECONDS, SPARSEREEL_GROUP_SECONDS",
       "How long ranks wait for one that has not started (60), and for one that does not answer (600). batch --gpus "
       "gives the rows of a process that says nothing for so long to the others."},
      {"", "SPARSEREEL_JOB_SECRET",
       "A random text of 16 characters or more, the same for all ranks, by which they know each other. Ranks of "
       "several hosts need one."},
      {"", "NCCL_NVLS_ENABLE", "0, unless it is set: NVLink's multicast, which not every host allows."},
      {"", "NCCL_CUMEM_ENABLE", "0, unless it is set or /dev/shm has little room: several cards then start faster."},
      {"", "CUDA_VISIBLE_DEVICES",
       "The GPUs that there are, as for every CUDA program; --device cuda:N counts within."},
      {"", "OMP_NUM_THREADS", "CPU threads, where --threads is not given."},
      {"", "OMP_WAIT_POLICY",
       "passive, unless this or GOMP_SPINCOUNT is set: CPU threads that wait leave the CPU to others."},
      {"", "SPARSEREEL_ATTENTION_KERNEL",
       "hopper, ada, ampere, avx512, avx2 or portable: this kernel in place of the best one, for comparisons."},
      {"", "TERM", "dumb: lines in place of the progress bar, as where stderr is no terminal."}};
}

std::vector<Entry> exit_status_entries() {
  return {{"EXIT STATUS", "", ""},
          {"", "0", "Done."},
          {"", "1", "Failed while running."},
          {"", "2", "Bad arguments or input."},
          {"", "130", "Interrupted; nothing half-written is left behind."}};
}

std::vector<Entry> manual(const CommandInfo& program) {
  std::vector<Entry> entries = {
      {"NAME", "", ""},
      {"", "", "sparsereel - " + program.help},
      {"SYNOPSIS", "", ""},
      {"", "", "sparsereel COMMAND [options]. Long names accept _ for -, and a value after a space or after =."}};
  const auto generate = std::find_if(program.commands.begin(), program.commands.end(),
                                     [](const CommandInfo& command) { return command.path == "generate"; });
  for (const CommandInfo* command : all_commands(program))
    if (!command->path.empty() && command->commands.empty())
      add_command(*command, generate == program.commands.end() ? nullptr : &*generate, entries);
  for (const auto& section : {attention_entries(), file_entries(), environment_entries(), exit_status_entries()})
    entries.insert(entries.end(), section.begin(), section.end());
  return entries;
}

std::string as_text(const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& entry : entries) {
    if (!entry.heading.empty())
      text += (text.empty() ? "" : "\n") + entry.heading + "\n";
    else if (entry.term.empty())
      text += wrapped(entry.text, 4);
    else
      text += "    " + entry.term + "\n" + wrapped(entry.text, 8);
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
      text += ".PP\n" + escaped(entry.text) + "\n";
    else
      text += ".TP\n.B " + escaped(entry.term) + "\n" + escaped(entry.text) + "\n";
  }
  return text;
}

/// `format`: text, or man (for `man -l` or a folder of manual pages). Throws Error for any other.
std::string reference(const CommandInfo& program, const std::string& format) {
  require_choice("--format " + format, format, {"text", "man"}, "see 'sparsereel reference --help'");
  return format == "text" ? as_text(manual(program)) : as_man(manual(program));
}

}  // namespace

void add_reference(CLI::App& program, CommandLine& /*line*/) {
  CLI::App* command = program.add_subcommand("reference", "the manual: every command, option and file");
  const auto format = std::make_shared<std::string>("text");
  command->footer("sparsereel reference --format man | man -l -");
  command->add_option("--format", *format, "as it is, or for 'man -l -' (default text)")->type_name("text,man");
  command->callback([&program, format] { std::cout << reference(describe(program), *format); });
}

}  // namespace sparsereel::app
