// Checks words and numbers that users give. The errors name the choices or the range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/store/configs/nearest.h"

namespace sparsereel::app {

using models::did_you_mean;
using models::nearest;

/// Returns true if the choice is a pattern that stands for many words: "cuda:N" stands for cuda:0, cuda:1 and so on.
inline bool is_pattern(std::string_view choice) {
  return choice.ends_with(":N");
}
/// Returns true if `word` is one of the choices, or if a pattern among them stands for it.
bool is_choice(std::string_view word, const std::vector<std::string>& choices);

/// Throws Error if `word` is not one of `choices`: "--format cvs: one of md, csv, json is needed", "did you mean csv?
/// see ...". `what` names the value in the error, such as "--format cvs". `otherwise` is the remedy if no choice is
/// near `word`.
void require_choice(const std::string& what, std::string_view word, const std::vector<std::string>& choices,
                    const std::string& otherwise);

/// Throws Error naming the option if `value` is given and is below `least` or above `most`.
void check_range(const std::string& option, std::optional<int64_t> value, int64_t least, int64_t most);

}  // namespace sparsereel::app
