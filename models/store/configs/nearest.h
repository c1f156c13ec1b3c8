// The known name that a mistyped one most likely means, for errors that help.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::models {

/// The candidate with the fewest edits (a letter added, left out, replaced, or two neighbours swapped) from `word`;
/// empty where even that one differs in more than a third of its letters.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "did you mean steps? see ..." or, where nothing is near, `otherwise` alone.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         const std::string& otherwise);

}  // namespace sparsereel::models
