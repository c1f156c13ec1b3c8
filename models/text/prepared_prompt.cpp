// Applies a family's prompt rules.
#include "models/text/prepared_prompt.h"

#include "models/text/clean_prompt.h"

namespace sparsereel::models {

std::string prepared_prompt(const std::string& text, const PromptRules& rules) {
  if (rules.lowered) return without_stray_full_stops(lower_prompt(rules.before + text + rules.after));
  return rules.before + (rules.cleaned ? clean_prompt(text) : text) + rules.after;
}

}  // namespace sparsereel::models
