// What the tokenizer of a model's text encoder is given for a prompt.
#pragma once

#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

/// The prompt as the family's rules clean it, between their words. `text`: UTF-8.
std::string prepared_prompt(const std::string& text, const PromptRules& rules);

}  // namespace sparsereel::models
