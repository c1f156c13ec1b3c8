// Checks of words and numbers, with errors that help.
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

/// A choice that stands for many: "cuda:N" for cuda:0, cuda:1 and so on.
inline bool is_pattern(std::string_view choice) {
  return choice.ends_with(":N");
}
/// `word` is one of the choices, or one that a pattern among them stands for.
bool is_choice(std::string_view word, const std::vector<std::string>& choices);

/// Throws Error where `word` is none of `choices`: "--format cvs: one of md, csv, json is needed", "did you mean csv?
/// see ...". `what` is how the error names the value: "--format cvs".
void require_choice(const std::string& what, std::string_view word, const std::vector<std::string>& choices,
                    const std::string& otherwise);

/// Throws Error naming the option where its value is outside least to most.
void check_range(const std::string& option, std::optional<int64_t> value, int64_t least, int64_t most);

}  // namespace sparsereel::app
