// The options that commands share: names and help, and what else the program has to know of each. No torch.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparsereel::app {

enum class ValueKind { text, file, folder, loras, whole, number, numbers, size, seed, flag, choice };

/// The commands that take options of the table.
enum class Command { generate, batch, decode, bench_pipeline, bench_quality, tune };

/// What a recipe has of an option: nothing, its value, or name and hash of its file.
enum class InRecipe { nothing, value, file };

/// Who gives an option where a prompt set is rendered: rows or the command line, rows only, the command line only.
enum class Scope { any, one_video, whole_set };

/// What leaves an option without effect: the run goes on, with a warning.
enum class Idle {
  every_block,      // attention computes all
  profile,          // has a policy for each head
  no_means,         // stand for dropped blocks
  no_guidance,      // is asked for
  one_transformer,  // is all that the model has
  narrow_blocks,    // has the transformer
  narrow_layers,    // has the text encoder
  no_flow,          // matching is what the sampler does
  no_reuse,         // is possible
  tuning,           // looks at every step
  on_a_cpu,         // it runs
  not_encoded,      // the output
  no_frame_rate,    // has the output
  random_seed,      // the next run takes another
};

/// Another choice that cannot be made beside an option.
struct Exclusion {
  std::string other;                         // its key
  std::string value = {}, other_value = {};  // which values exclude each other; empty: all
};

/// One option: its key in YAML files is its first long name with '_' for '-'.
struct OptionSpec {
  std::string key = {};    // "steps"; made of the names
  std::string group = {};  // heading in --help
  std::string names;       // as CLI11 takes them: "--steps,--num-inference-steps"
  ValueKind kind = ValueKind::text;
  std::string help;
  std::vector<std::string> choices = {};       // of ValueKind::choice
  std::vector<std::string> more_choices = {};  // that help does not list: other words for the same
  std::vector<Command> commands = {};   // that take it, beside `generate`, which takes all, and `batch`: see takes()
  InRecipe recipe = InRecipe::nothing;  // those of a value make the picture
  bool written = false;                 // the run writes this file; it reads the others
  bool quoted = false;                  // what the file says becomes part of the video's recipe, word for word
  Scope scope = Scope::any;
  std::vector<Idle> idle = {};           // what leaves it without effect
  std::string nothing = {};              // the value that asks for nothing: beside it no effect is missed
  std::vector<Exclusion> excludes = {};  // it and the others exclude each other: said once, of the first of two
};

/// Where the file may be that a row of a prompt set names for an option: a set may be somebody else's work.
enum class RowFile {
  anywhere,        // it is read and checked, and nothing of it is told
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

bool is_idle(const OptionSpec& option, Idle cause);
/// Every cause in the manual's words: "attention full or quantized, which compute every block".
const std::vector<std::pair<Idle, std::string>>& idle_causes();

/// `generate` takes every option, `batch` all but those of one video.
bool takes(Command command, const OptionSpec& option);

}  // namespace sparsereel::app
