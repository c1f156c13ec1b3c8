// Cleans prompts before tokenization, for models whose reference implementation cleans them.
#pragma once

#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

/// Returns what diffusers' pipelines make of a prompt with prompt_clean(). That is ftfy's fix_text
/// (https://ftfy.readthedocs.org), html.unescape twice, and single spaces in place of white space, without spaces at
/// the ends. ftfy replaces character references, U+0080 to U+009F (by the characters of Windows-1252), Latin ligatures,
/// fullwidth and halfwidth forms, curly quotes and line breaks. It removes terminal escapes and other control
/// characters, and returns normal form C. Two of ftfy's steps are left out: it also repairs text decoded in a wrong
/// encoding (here "Ã©" stays), and replaces references in capitals ("&EACUTE;"). `text` must be UTF-8.
std::string clean_prompt(const std::string& text);

/// Applies Python's lower() and strip(): every character in lower case by Unicode's own mapping, without white space at
/// the ends. Unlike Python, it turns a capital sigma at a word's end into an ordinary small sigma, not into a final
/// sigma. `text` is UTF-8.
std::string lower_prompt(const std::string& text);

/// Applies a step of the caption cleaning in diffusers' DeepFloyd IF pipeline, and does so twice, as that pipeline
/// does. A row of full stops, and a full stop between white space, become a space. Each run of white space becomes one
/// space, and none stays at the ends. `text` is UTF-8.
std::string without_stray_full_stops(const std::string& text);

/// Cleans the prompt by the family's rules and puts it between the words that the rules add. `text` is UTF-8.
std::string prepared_prompt(const std::string& text, const PromptRules& rules);

}  // namespace sparsereel::models
