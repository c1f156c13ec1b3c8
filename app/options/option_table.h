// The options that commands share: their names, help texts and properties, and the settings made of their values. Does
// not use torch.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/options/option_text.h"
#include "models/request/fields.h"
#include "models/request/settings.h"

namespace sparsereel::app {

using models::Exclusion;
using models::files_in;
using models::InRecipe;
using models::is_random_seed;
using models::kRandomSeed;
using models::Mark;
using models::NoEffect;
using models::Place;
using models::Places;
using models::PresetUse;
using models::Setting;
using models::Source;
using models::ValueKind;

/// The commands that take options from the table.
enum class Command { generate, batch, serve, decode, bench_pipeline, bench_quality, tune };

/// Says where a command with a prompt set takes an option: in rows and on the command line (`any`), only in rows
/// (`one_video`), or only on the command line (`whole_set`).
enum class Scope { any, one_video, whole_set };

/// Says where `serve` takes an option: as a field of requests, on its command line, or both. If both, the command line
/// gives the default of requests.
enum class InServe {
  usual,    // `field` if the option changes the video and names no file or folder; otherwise `server`
  field,    // both; the field of a file option holds a name from one of the server's folders
  request,  // as a field only, because it says what one video shows
  server,   // on the command line only, because it is about the machine or the program
  nothing,  // nowhere, such as images, which clients upload
};

/// One option. Its key in YAML files is its first long name with '_' for '-'. For an option that is one of
/// models::fields(), option_groups_*.cpp give only what the command line adds; the field gives the rest.
struct OptionSpec {
  std::string names;           // as CLI11 takes them: "--steps,--num-inference-steps"
  models::Option option = {};  // the part that Settings uses; its keys are derived from the names
  std::string group = {};      // heading in --help
  std::string help = {};       // one line
  std::string manual = {};     // a paragraph of `reference`
  std::string example = {};    // a command line that uses it
  InHelp in_help = InHelp::everywhere;
  std::vector<std::string> choices = {};       // for ValueKind::choice
  std::vector<std::string> more_choices = {};  // synonyms that help does not list
  std::string bare = {};                       // the value if the option is given without one; empty if it needs one
  std::vector<Command> commands = {};          // the commands that take it, besides `generate` and `batch`; see takes()
  InRecipe recipe = InRecipe::nothing;         // InRecipe::value if the option affects the frames
  bool written = false;                        // true if the run writes this file, false if it reads it
  bool quoted = false;                         // true if the file's text goes into the video's recipe, word for word
  Scope scope = Scope::any;
  InServe serve = InServe::usual;  // never `usual` in option_table()

  const std::string& key() const { return option.key; }
  ValueKind kind() const { return option.kind; }
};

/// Says where a file that a row of a prompt set names may lie. This is limited because the set may come from a
/// stranger.
enum class RowFile {
  anywhere,        // the file is read and checked, but never quoted; relative to the working directory
  from_the_set,    // the file is read and checked, but never quoted; relative to the folder of the set
  in_the_output,   // inside the output folder, so that writing replaces nothing elsewhere
  beside_the_set,  // in the set's folder, so that a stranger's set cannot quote other files of the user
};
RowFile row_file(const OptionSpec& option);

/// Returns every option that `generate` takes; the other commands take some of them.
const std::vector<OptionSpec>& option_table();
/// Returns the option with this key; null if there is none. Another long name of the option, written with '_', is also
/// a key.
const OptionSpec* find_option(std::string_view key);
/// Converts "max_sequence_length" to "--max-sequence-length".
std::string option_name(std::string key);
/// Converts "--max-sequence-length" to "max_sequence_length". A short name, such as "-p", gives "".
std::string key_of_option(std::string name);

/// Returns true if the option is a field of a server's requests.
bool is_request_field(const OptionSpec& option);

/// Returns true if the command takes the option. `generate` takes all, and `batch` all but those of one video. `serve`
/// takes those of InServe::field and InServe::server, except those of one video. Other commands take the options that
/// list them.
bool takes(Command command, const OptionSpec& option);

/// Returns the options of option_table().
const models::OptionList& program_options();

class Settings : public models::Settings {
 public:
  Settings() : models::Settings(program_options()) {}
};

}  // namespace sparsereel::app
