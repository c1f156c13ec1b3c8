// Option values by name, with their sources: a row of a prompt set, command line, YAML file, profile, a video's recipe,
// or a matched model config. No torch.
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

struct TunedProfile;

/// The value of the option `seed` that asks for a new seed in every run; -1 asks for the same.
constexpr std::string_view kRandomSeed = "random";
inline bool is_random_seed(std::string_view text) {
  return text == kRandomSeed || text == "-1";
}

/// The source of a value; later sources are stronger.
enum class Source {
  matched_config,
  distilled,
  recipe,
  profile,
  config_file,
  command_line,
  row
};  // `row` is a row of a prompt set

struct Setting {
  std::string value;
  Source source = Source::command_line;
  std::string file;  // empty for the command line
  Mark mark;         // for a value in YAML or a prompt set
};

/// Returns the files that a valid value of this kind names; empty if values of this kind name no files.
std::vector<std::filesystem::path> files_in(ValueKind kind, const std::string& value);

/// How much of a preset applies. whole: all options. blocks_alone: only the choice of blocks, without cache, dense
/// steps and exact steps, for measurements of single steps. whole_where_named: all options if the user names a preset,
/// else as blocks_alone.
enum class PresetUse { whole, whole_where_named, blocks_alone };

class Settings {
 public:
  /// `options` lists the options that can be given. It must outlive the settings.
  explicit Settings(const OptionList& options) : options_(&options) {}

  /// Adds the values of one source. Throws Error naming option and file for an unknown key, a value of the wrong kind,
  /// or an option given under two names. Also throws if two options of this source exclude each other. A value of a
  /// stronger source replaces a weaker one, and removes weaker values that it excludes (--topk removes a file's cdf).
  /// `places` holds the positions of the values in the file, so that errors can name line and column.
  void add(Source source, const std::map<std::string, std::string>& values, const std::string& file = {},
           const Places& places = {});

  void remove(Source source) {
    std::erase_if(values_, [source](const auto& each) { return each.second.source == source; });
  }

  const OptionList& options() const { return *options_; }
  const Setting* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Returns a value as warnings name it: "--steps 0" or "my.yaml:3:8: steps 0". For a value of a prompt set's row it
  /// returns "steps 0", because a warning about a row begins with the row's place.
  std::string describe(const std::string& key) const;
  /// Rewrites an error of a later stage, which knows only fields and files, in the user's words. The result begins with
  /// the option's name ("--frames 8 ..."), or with the place of the value ("my.yaml:3:9: frames 8 ..."). If the error
  /// is about a file, it begins with the place that named the file ("my.yaml:4:9: output: a.mp5: ..."). Its file() is
  /// then the file of that place.
  Error with_place(const Error& error) const;
  /// Names the options ("--topk") that the command line gave as lists. Lists are not settings, so with_place() adds no
  /// place to errors about them.
  void given_as_lists(std::vector<std::string> options) { lists_ = std::move(options); }

  /// Sets the model's own defaults, for options that no source gives.
  void set_fallbacks(Defaults defaults) { fallbacks_ = std::move(defaults); }
  const Defaults& fallbacks() const { return fallbacks_; }

  /// Sets the file of configs/ that describes the model. If no file does, `config` has no defaults.
  void set_model_config(ModelConfig config) { config_ = std::make_shared<const ModelConfig>(std::move(config)); }
  /// Adds the values of the model's file: its defaults, the preset, and the settings that `distilled` asks for; the
  /// later of these override the earlier. First removes the values that an earlier call added. `named`, unless empty,
  /// is used in place of the setting `preset`. Throws Error (field preset or distilled) if the file does not have the
  /// preset or the distilled settings.
  void add_model_config(PresetUse use, const std::string& named = {});
  const PresetChoice& preset() const { return preset_; }
  /// Returns a warning if the run's weights are named like a distilled model's, but neither `distilled` nor `steps` nor
  /// `sigmas` is given. Otherwise returns an empty string.
  std::string distilled_warning() const;
  std::vector<std::string> preset_names() const;

  /// Stores the profile that add_profile() has read, so that its file is not read again.
  void keep_profile(std::shared_ptr<const TunedProfile> profile) { profile_ = std::move(profile); }
  /// Returns the stored profile; null if there is none.
  const std::shared_ptr<const TunedProfile>& profile() const { return profile_; }

  std::optional<std::string> text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  std::optional<int64_t> whole(const std::string& key) const;
  std::optional<uint64_t> unsigned_whole(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  bool flag(const std::string& key, bool fallback = false) const;

 private:
  std::map<std::string, std::string> above_model_config() const;
  bool stronger(const std::string& key, const std::string& value, Source source) const;
  std::string label(const std::string& key, Source source, const std::string& file, Mark mark = {}) const;
  std::string label(const Choice& choice, const Setting& setting) const;
  const Option& checked_option(const std::string& given, const std::string& value, Source source,
                               const std::string& file, const Place& place) const;
  void refuse_both(const std::map<std::string, Setting>& added) const;
  void expand_size(std::map<std::string, Setting>& added) const;
  Error placed(const Error& error) const;
  /// Returns the setting that names the longest part of this file's path, and stores its key in `key`. Returns null if
  /// no setting names the path, or if several name equally long parts.
  const Setting* that_names(const std::string& file, std::string& key) const;

  const OptionList* options_;
  std::map<std::string, Setting> values_;
  std::vector<std::string> lists_;
  Defaults fallbacks_;
  std::shared_ptr<const ModelConfig> config_;
  PresetChoice preset_;
  std::shared_ptr<const TunedProfile> profile_;
};

}  // namespace sparsereel::models
