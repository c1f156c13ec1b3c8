// Builds a list of options, and the pairs of choices that exclude each other.
#include "models/request/option.h"

#include <algorithm>
#include <utility>

namespace sparsereel::models {

OptionList::OptionList(std::vector<Option> all, Words words) : all_(std::move(all)), words_(std::move(words)) {
  for (const Option& option : all_)
    for (const Exclusion& each : option.excludes)
      exclusions_.push_back({{option.key, each.value}, {each.other, each.other_value}});
}

const Option* OptionList::find(std::string_view key) const {
  const auto found = std::ranges::find_if(all_, [&](const Option& option) {
    return option.key == key || std::ranges::find(option.other_keys, key) != option.other_keys.end();
  });
  return found == all_.end() ? nullptr : &*found;
}

Option option_of(const Field& field) {
  return {.key = field.name,
          .other_keys = {},
          .kind = field.kind,
          .no_effect = field.no_effect,
          .nothing = field.nothing,
          .excludes = field.excludes};
}

bool has_no_effect(const Option& option, NoEffect cause) {
  return std::ranges::find(option.no_effect, cause) != option.no_effect.end();
}

}  // namespace sparsereel::models
