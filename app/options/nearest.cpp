// Checks words against choices and numbers against ranges.
#include "app/options/nearest.h"

#include <algorithm>

#include "hilbert/error.h"

namespace sparsereel::app {

bool is_choice(std::string_view word, const std::vector<std::string>& choices) {
  return std::any_of(choices.begin(), choices.end(), [&](const std::string& choice) {
    if (!is_pattern(choice)) return choice == word;
    const std::string_view start = std::string_view(choice).substr(0, choice.size() - 1);
    return word.starts_with(start) && word.size() > start.size() &&
           word.find_first_not_of("0123456789", start.size()) == std::string_view::npos;
  });
}

void require_choice(const std::string& what, std::string_view word, const std::vector<std::string>& choices,
                    const std::string& otherwise) {
  if (is_choice(word, choices)) return;
  std::string known;
  for (const std::string& choice : choices) known += (known.empty() ? "" : ", ") + choice;
  throw bad_input(what + ": one of " + known + " is needed", did_you_mean(word, choices, otherwise));
}

void check_range(const std::string& option, std::optional<int64_t> value, int64_t least, int64_t most) {
  if (value && (*value < least || *value > most))
    throw bad_input(
        option + " " + std::to_string(*value) + " is outside " + std::to_string(least) + " to " + std::to_string(most),
        "give a number in that range");
}

}  // namespace sparsereel::app
