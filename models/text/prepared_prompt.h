// Prepares prompts for the tokenizer of a model's text encoder.
#pragma once

#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

/// Returns the prompt, cleaned by the family's rules, between their words. `text` is UTF-8.
std::string prepared_prompt(const std::string& text, const PromptRules& rules);

}  // namespace sparsereel::models
