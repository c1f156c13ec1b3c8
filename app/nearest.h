// The known name that a mistyped one most likely means, for errors that help.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app {

/// The candidate with the fewest edits (a letter added, left out, replaced, or two neighbours swapped) from `word`;
/// empty where even that one differs in more than a third of its letters.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "did you mean steps? see ..." or, where nothing is near, `otherwise` alone.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         const std::string& otherwise);

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
