// An option as settings know it. The command line, a file or the library may give its value. The program has its help
// elsewhere. No torch.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/request/fields.h"

namespace sparsereel::models {

struct Option {
  std::string key;                           // "steps"
  std::vector<std::string> other_keys = {};  // its other names: "num_inference_steps"
  ValueKind kind = ValueKind::text;
  std::vector<Idle> idle = {};           // what leaves it without effect
  std::string nothing = {};              // the value that asks for nothing: beside it no effect is missed
  std::vector<Exclusion> excludes = {};  // it and the others exclude each other: said once, of the first of two
};

/// The options that can be given, and how errors speak of them.
class OptionList {
 public:
  struct Words {
    /// How an option of the caller is named: "--steps" on a command line, "steps" in a struct.
    std::function<std::string(const std::string& key)> name;
    /// Throws Error where the value is none of the option's kind. `what`: how the error names option and value.
    std::function<void(const Option&, const std::string& what, const std::string& value)> check;
    /// The remedy for a key that no option has.
    std::function<std::string(const std::string& key)> unknown;
  };

  OptionList(std::vector<Option> all, Words words);

  const std::vector<Option>& all() const { return all_; }
  /// By its key or another name; nullptr where there is none.
  const Option* find(std::string_view key) const;
  const Words& words() const { return words_; }
  /// Choices of which a source may make only one.
  const ExclusiveChoices& exclusions() const { return exclusions_; }

 private:
  std::vector<Option> all_;
  Words words_;
  ExclusiveChoices exclusions_;
};

/// What a field says of its option.
Option option_of(const Field& field);

bool is_idle(const Option& option, Idle cause);

}  // namespace sparsereel::models
