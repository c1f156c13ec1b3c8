// Suggests, for errors, the known name that a mistyped name most likely means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::models {

/// Returns the candidate with the fewest edits from `word` (letters added, omitted, replaced, or swapped with a
/// neighbor). Empty if even this candidate differs in more than a third of its letters.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns "did you mean steps? " followed by `otherwise`; only `otherwise` if no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         const std::string& otherwise);

}  // namespace sparsereel::models
