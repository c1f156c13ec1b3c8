// The options that commands share: names and help, and what else the program has to know of each. No torch.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/request/fields.h"

namespace sparsereel::app {

using models::Exclusion;
using models::Idle;
using models::InRecipe;
using models::ValueKind;

/// The commands that take options of the table.
enum class Command { generate, batch, decode, bench_pipeline, bench_quality, tune };

/// Who gives an option where a prompt set is rendered: rows or the command line, rows only, the command line only.
enum class Scope { any, one_video, whole_set };

/// One option: its key in YAML files is its first long name with '_' for '-'. Of a field of models::fields() stands
/// here what the command line adds to it; the rest is the field's.
struct OptionSpec {
  std::string key = {};    // "steps"; made of the names
  std::string group = {};  // heading in --help
  std::string names;       // as CLI11 takes them: "--steps,--num-inference-steps"
  ValueKind kind = ValueKind::text;
  std::string help = {};
  std::vector<std::string> choices = {};       // of ValueKind::choice
  std::vector<std::string> more_choices = {};  // that help does not list: other words for the same
  std::vector<Command> commands = {};   // that take it, beside `generate`, which takes all, and `batch`: see takes()
  InRecipe recipe = InRecipe::nothing;  // those of a value make the picture
  bool written = false;                 // the run writes this file; it reads the others
  bool quoted = false;                  // what the file says becomes part of the video's recipe, word for word
  bool borrowed = false;                // another program's name for others: in the reference alone
  Scope scope = Scope::any;
  std::vector<Idle> idle = {};           // what leaves it without effect
  std::string nothing = {};              // the value that asks for nothing: beside it no effect is missed
  std::vector<Exclusion> excludes = {};  // it and the others exclude each other: said once, of the first of two
};

/// Where the file may be that a row of a prompt set names for an option: a set may be somebody else's work.
enum class RowFile {
  anywhere,        // it is read and checked, and nothing of it is told; relative to the working directory
  from_the_set,    // likewise, but a relative path begins in the folder of the set
  in_the_output,   // what is written replaces nothing elsewhere
  beside_the_set,  // what is quoted is no secret of whoever renders the set
};
RowFile row_file(const OptionSpec& option);

/// Every option that `generate` has; the other commands take some of them.
const std::vector<OptionSpec>& option_table();
/// The option with this key, or with one of its other long names written with '_'; nullptr where there is none.
const OptionSpec* find_option(std::string_view key);
/// "max_sequence_length" -> "--max-sequence-length"
std::string option_name(std::string key);
/// "--max-sequence-length" -> "max_sequence_length"; empty for a short name.
std::string key_of_option(std::string name);

/// Whether a preset, or a profile, may decide about it.
bool is_of_a_preset(const OptionSpec& option);

bool is_idle(const OptionSpec& option, Idle cause);

/// `generate` takes every option, `batch` all but those of one video.
bool takes(Command command, const OptionSpec& option);

}  // namespace sparsereel::app
