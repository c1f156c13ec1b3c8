// Option values by name, each remembering where it came from: a prompt set's row, command line, YAML file, profile, a
// video's recipe, matched model config. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hilbert/error.h"
#include "models/request/option.h"
#include "models/request/place.h"
#include "models/request/presets.h"
#include "models/request/spec.h"

namespace sparsereel::models {

/// As a seed: one that is drawn anew for every run, as -1 is.
constexpr std::string_view kRandomSeed = "random";
inline bool is_random_seed(std::string_view text) {
  return text == kRandomSeed || text == "-1";
}

/// Where a value comes from; a later one wins.
enum class Source { matched_config, recipe, profile, config_file, command_line, row };  // row: of a prompt set

struct Setting {
  std::string value;
  Source source = Source::command_line;
  std::string file;  // unless it is the command line
  Mark mark;         // of a value in YAML or a prompt set
};

/// That an option's value, which its kind allows, names; none of an option that names no file.
std::vector<std::filesystem::path> files_in(ValueKind kind, const std::string& value);

/// What counts of a preset. What measures steps one by one wants the blocks of the default one, not its cache and dense
/// steps.
enum class PresetUse { whole, whole_where_named, blocks_alone };

class Settings {
 public:
  /// `options`: that can be given. They must outlive the settings.
  explicit Settings(const OptionList& options) : options_(&options) {}

  /// Adds the values of one source. Throws Error naming option and file: unknown key, a value that its kind does not
  /// allow, the same option under two names, or two options of one source that exclude each other. A value of a
  /// stronger source replaces the weaker one's, and also removes what it excludes (--topk over a file's cdf). `places`:
  /// of the values in the file; errors then name line and column.
  void add(Source source, const std::map<std::string, std::string>& values, const std::string& file = {},
           const Places& places = {});

  /// Takes back what this source gave.
  void remove(Source source) {
    std::erase_if(values_, [source](const auto& each) { return each.second.source == source; });
  }

  const OptionList& options() const { return *options_; }
  const Setting* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// How a warning names a value: "--steps 0" or "my.yaml:3:8: steps 0"; a row's, whose place stands before the whole
  /// warning, "steps 0".
  std::string describe(const std::string& key) const;
  /// An error of later stages, which know fields and files only, in the user's words: with the option's name
  /// ("--frames 8 ..."), or the place in the file that gave the value ("my.yaml:3:9: frames 8 ...") or named the file
  /// ("my.yaml:4:9: output: a.mp5: ..."); its file() is then that file.
  Error with_place(const Error& error) const;
  /// Options, as "--topk", that the command line gave as lists, which are no settings: errors about them stay as they
  /// are.
  void given_as_lists(std::vector<std::string> options) { lists_ = std::move(options); }

  /// The model's own defaults, for what no source gives.
  void set_fallbacks(Defaults defaults) { fallbacks_ = std::move(defaults); }
  const Defaults& fallbacks() const { return fallbacks_; }

  /// The file of configs/ that fits the model; without defaults where none does.
  void set_model_config(ModelConfig config) { config_ = std::make_shared<const ModelConfig>(std::move(config)); }
  /// Adds what the file gives beside all that was added, in place of what it gave before: its defaults, and the
  /// preset's on top. Throws Error (field preset) where it has none such.
  void add_model_config(PresetUse use, const std::string& named = {});
  const PresetChoice& preset() const { return preset_; }
  /// Those that the file has.
  std::vector<std::string> preset_names() const;

  std::optional<std::string> text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  std::optional<int64_t> whole(const std::string& key) const;
  std::optional<uint64_t> unsigned_whole(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  bool flag(const std::string& key, bool fallback = false) const;

 private:
  bool stronger(const std::string& key, const std::string& value, Source source) const;
  std::string label(const std::string& key, Source source, const std::string& file, Mark mark = {}) const;
  std::string label(const Choice& choice, const Setting& setting) const;
  const Option& checked_option(const std::string& given, const std::string& value, Source source,
                               const std::string& file, const Place& place) const;
  void refuse_both(const std::map<std::string, Setting>& added) const;
  void expand_size(std::map<std::string, Setting>& added) const;
  Error placed(const Error& error) const;
  /// What names this file, the one that says most of its path; null where nothing does, or several alike. Its key.
  const Setting* that_names(const std::string& file, std::string& key) const;

  const OptionList* options_;
  std::map<std::string, Setting> values_;
  std::vector<std::string> lists_;
  Defaults fallbacks_;
  std::shared_ptr<const ModelConfig> config_;
  PresetChoice preset_;
};

}  // namespace sparsereel::models
