// The first steps of a run, given as a number or as a percentage of all steps. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sparsereel::models {

struct FirstSteps {
  int64_t steps = 0;
  std::optional<double> percent = {};  // if set, replaces `steps`

  /// Returns the number of first steps in a run of `run_steps`; a percentage is rounded up.
  int64_t of(int64_t run_steps) const;
  bool operator==(const FirstSteps&) const = default;
};
/// Returns "5" or "20%".
std::string name(const FirstSteps& first);
/// Reads the texts of name(). Throws Error naming `field` for any other text.
FirstSteps parse_first_steps(const std::string& text, const std::string& field);

}  // namespace sparsereel::models
