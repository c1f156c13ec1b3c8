// Prepares prompts for the tokenizer of a model's text encoder.
#pragma once

#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

/// Cleans the prompt by the family's rules and puts it between the words that the rules add. `text` is UTF-8.
std::string prepared_prompt(const std::string& text, const PromptRules& rules);

}  // namespace sparsereel::models
