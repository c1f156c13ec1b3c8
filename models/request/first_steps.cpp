// Converts first steps to texts and back.
#include "models/request/first_steps.h"

#include <cmath>
#include <string_view>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"

namespace sparsereel::models {

int64_t FirstSteps::of(int64_t run_steps) const {
  return percent ? static_cast<int64_t>(std::ceil(*percent * static_cast<double>(run_steps) / 100)) : steps;
}

std::string name(const FirstSteps& first) {
  return first.percent ? exact_text(*first.percent) + "%" : std::to_string(first.steps);
}

FirstSteps parse_first_steps(const std::string& text, const std::string& field) {
  if (text.ends_with('%')) {
    const auto percent = parse_number<double>(std::string_view(text).substr(0, text.size() - 1));
    if (percent && *percent >= 0 && *percent <= 100) return {.percent = percent};
  } else if (const auto steps = parse_number<int64_t>(text); steps && *steps >= 0) {
    return {.steps = *steps};
  }
  throw bad_option(field, text + " is neither a count of steps nor a percentage from 0 to 100%",
                   "give for example 5 or 20%");
}

}  // namespace sparsereel::models
