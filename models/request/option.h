// An option as Settings handles it, whether the command line, a file or the library gives its value. Help texts are in
// app/options. No torch.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/request/fields.h"

namespace sparsereel::models {

struct Option {
  std::string key = {};                      // "steps"
  std::vector<std::string> other_keys = {};  // other names of the option: "num_inference_steps"
  ValueKind kind = ValueKind::text;
  std::vector<NoEffect> no_effect = {};  // causes that leave the option without effect
  std::string nothing = {};              // the value that requests nothing ("0" for no cache), so no warning is needed
  /// Choices that cannot be combined with choices of this option. Each pair is listed once, by the first of the two
  /// options.
  std::vector<Exclusion> excludes = {};
};

/// The options that can be given, and the words that errors use for them.
class OptionList {
 public:
  struct Words {
    /// Returns the option's name in the words of the caller: "--steps" on a command line, "steps" in a struct.
    std::function<std::string(const std::string& key)> name;
    /// Throws Error if the value does not fit the option's kind. `what` names option and value in the error.
    std::function<void(const Option&, const std::string& what, const std::string& value)> check;
    /// Returns the remedy of the error about a key that is not an option.
    std::function<std::string(const std::string& key)> unknown;
  };

  OptionList(std::vector<Option> all, Words words);

  const std::vector<Option>& all() const { return all_; }
  /// Finds an option by its key or another name; returns nullptr if there is none.
  const Option* find(std::string_view key) const;
  const Words& words() const { return words_; }
  /// Returns the pairs of choices that exclude each other within one source.
  const ExclusiveChoices& exclusions() const { return exclusions_; }

 private:
  std::vector<Option> all_;
  Words words_;
  ExclusiveChoices exclusions_;
};

Option option_of(const Field& field);

bool has_no_effect(const Option& option, NoEffect cause);

}  // namespace sparsereel::models
